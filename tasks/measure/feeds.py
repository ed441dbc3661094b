"""Feeds as one stored object, so that the measuring process needs no model zoo and no torch."""

import io
from collections.abc import Sequence
from zipfile import BadZipFile

import numpy as np

from tasks.backends.base import Tensors
from tasks.errors import BadArtifact, BadModel
from tasks.store import Store


def store_feeds(feeds: Sequence[Tensors], store: Store) -> str:
    """Store feeds as one .npz with entries `INDEX/INPUT`; returns its sha256. BadModel when there are none."""
    if not feeds:
        raise BadModel("there are no feeds to measure with", "let the entry's requests() return at least one")
    buffer = io.BytesIO()
    arrays = {f"{index}/{name}": np.asarray(array) for index, feed in enumerate(feeds) for name, array in feed.items()}
    np.savez(buffer, allow_pickle=False, **arrays)  # type: ignore[arg-type]  # no input is called allow_pickle: names begin with an index
    return store.put(buffer.getvalue())


def load_feeds(sha256: str, store: Store) -> list[dict[str, np.ndarray]]:
    """The stored feeds, in order. BadArtifact when the object is something else."""
    feeds: dict[int, dict[str, np.ndarray]] = {}
    try:
        with np.load(store.path(sha256), allow_pickle=False) as file:
            for key in file.files:
                index, _, name = key.partition("/")
                feeds.setdefault(int(index), {})[name] = np.ascontiguousarray(file[key])
    except (ValueError, OSError, TypeError, EOFError, BadZipFile) as error:
        raise BadArtifact(f"object {sha256[:12]} does not hold feeds: {error}") from error
    return [feeds[index] for index in sorted(feeds)]
