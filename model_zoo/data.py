"""Labelled data: made once, kept in the store, and proven not to leak from one split into another."""

import hashlib
import io
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from model_zoo.facts import Split, Splits
from tasks.errors import BadModel
from tasks.facts import Artifact
from tasks.optional import version_of
from tasks.store import Store, sha256_of

if TYPE_CHECKING:
    import torch

log = logging.getLogger("crossgrade")
Arrays = dict[str, np.ndarray]


def sample_hash(*parts: np.ndarray | bytes | str) -> str:
    """sha256 of one raw sample: the type, shape and bytes of its arrays, or its text."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            digest.update(f"{part.dtype.str}{part.shape}".encode())
            digest.update(np.ascontiguousarray(part).tobytes())
        else:
            digest.update(part.encode() if isinstance(part, str) else part)
        digest.update(b"\0")
    return digest.hexdigest()


def stamp(path: Path) -> str:
    """What tells one state of a data file from another: its sha256; of a folder, that of its files' names, sizes and times."""
    if path.is_file():
        return sha256_of(path)
    files = sorted(file for file in path.rglob("*") if file.is_file())
    return sample_hash(*(f"{file.relative_to(path)} {file.stat().st_size} {file.stat().st_mtime_ns}" for file in files))


def check_splits(splits: Splits) -> Splits:
    """The same splits, after proof that no sample is in two of them or twice in one.

    Raises:
        BadModel: names the sample and where it is found.
    """
    home: dict[str, str] = {}
    for name in ("calibration", "development", "evaluation"):
        split: Split = getattr(splits, name)
        if not split.hashes or not len(split.feeds):
            raise BadModel(f"the {name} split is empty", "give more labelled samples")
        for position, sample in enumerate(split.hashes):
            if sample in home:
                raise BadModel(
                    f"sample {position} of {name} (sha256 {sample[:12]}) is also in {home[sample]}",
                    "remove the duplicate: a sample that is seen twice makes every figure too good",
                )
            home[sample] = f"{name}, sample {position}"
    return splits


def cached_arrays(store: Store, key: Mapping[str, object], make: Callable[[], Arrays], notes: Mapping[str, str] | None = None) -> Arrays:
    """Arrays made once per key and kept in the store as .npz. Read back from the file, so the first run sees what the second sees."""

    def write() -> Artifact:
        started = time.perf_counter_ns()
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, **make())
        return Artifact(
            kind="data",
            format="npz",
            sha256=store.put(buffer.getvalue()),
            size_bytes=buffer.tell(),
            tools={"numpy": version_of("numpy")},
            seconds=(time.perf_counter_ns() - started) / 1e9,
            notes=dict(notes or {}),
        )

    artifact = store.cached("data", dict(key), Artifact, write)
    with np.load(store.path(artifact.sha256), allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def trained_weights(store: Store, key: Mapping[str, object], train: Callable[[], "torch.nn.Module"]) -> "dict[str, torch.Tensor]":
    """Weights trained once per key (recipe, data, torch version), on one thread, and kept in the store as safetensors."""
    from safetensors.torch import load_file, save

    def write() -> Artifact:
        started = time.perf_counter_ns()
        with one_thread():
            trained = train()
        data = save({name: tensor.contiguous() for name, tensor in trained.state_dict().items()})
        return Artifact(
            kind="weights",
            format="safetensors",
            sha256=store.put(data),
            size_bytes=len(data),
            tools={"torch": version_of("torch")},
            seconds=(time.perf_counter_ns() - started) / 1e9,
        )

    full_key = {**key, "torch": version_of("torch"), "threads": 1}
    return load_file(store.path(store.cached("weights", full_key, Artifact, write).sha256))


@contextmanager
def one_thread() -> Iterator[None]:
    """Torch on one thread: the same weights whatever the number of cores, and no threads that wait for each other on a busy machine."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def module_source(path: Path) -> str:
    """sha256 of a module's own source: a changed network or recipe is another model, so it stands in `ModelSpec.files` and in keys."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def batches(array: np.ndarray, size: int) -> Sequence[np.ndarray]:
    """Consecutive slices of `size` rows; the last may be shorter."""
    return [array[start : start + size] for start in range(0, len(array), size)]
