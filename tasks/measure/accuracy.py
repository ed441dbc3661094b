"""Accuracy of the very engine that is timed, sample by sample, so that two engines can be compared in pairs."""

import logging
from collections.abc import Sequence
from typing import Any, Literal, overload

import numpy as np

from model_zoo.data import check_splits
from model_zoo.facts import Entry, Split
from tasks.backends import backend
from tasks.backends.base import Session, Tensors
from tasks.errors import BadModel
from tasks.facts import Artifact, Cell, Score, digest_of
from tasks.host import fingerprint
from tasks.optional import version_of
from tasks.store import Store

log = logging.getLogger("crossgrade")


def score(entry: Entry, engine: Artifact, cell: Cell, split: Literal["development", "evaluation"], store: Store) -> Score:
    """Run a split through an engine in this process and score it; cached by everything that could change the outputs.

    The number of threads is no part of that: the same engine on the same processor sums in another order, far below any margin.

    Raises:
        BadModel: an output is NaN or infinite, the entry's scores are no finite pairs, or a sample is in two splits or twice in one.
    """
    splits = check_splits(entry.splits(store))  # a user's own entry need not have done so
    data: Split = getattr(splits, split)
    key: dict[str, Any] = {
        "engine": engine.sha256,
        "backend": cell.backend,
        "versions": {name: version_of(name) for name in (*backend(cell.backend).distributions, "numpy")},
        "device": cell.target.device,
        "simulation": cell.target.simulation and cell.target.simulation.digest,
        "precision": cell.recipe.precision,
        "model": entry.spec.digest,
        "split": split,
        "data": digest_of(data.hashes),
        "calibration": digest_of(splits.calibration.hashes),
        "host": fingerprint(),
    }

    def make() -> Score:
        log.info("%s: scoring %d feeds of the %s split", cell.name, len(data.feeds), split)
        pairs = _pairs(entry, engine, cell, data, store)
        return Score(
            metric=entry.spec.metric,
            split=split,
            engine=engine.sha256,
            data=key["data"],
            calibration=key["calibration"],
            samples=store.put_array(pairs),
            count=len(pairs),
        )

    return store.cached("score", key, Score, make)


def _pairs(entry: Entry, engine: Artifact, cell: Cell, data: Split, store: Store) -> np.ndarray:
    """float64 (samples, 2) of one engine; BadModel when the entry gives anything else."""
    with backend(cell.backend).open(store.path(engine.sha256), cell) as session:
        pairs = np.asarray(entry.score(Outputs(session, data.feeds, cell.name), data.labels), np.float64)
    if pairs.ndim != 2 or pairs.shape[1] != 2 or not pairs.size or not np.isfinite(pairs).all():
        raise BadModel(
            f"{entry.spec.id}: score() gave no finite (samples, 2) pairs but shape {pairs.shape}",
            "return one numerator and one denominator for each sample",
        )
    if len(pairs) != len(data.hashes):
        raise BadModel(
            f"{entry.spec.id}: score() gave {len(pairs)} pairs for a split of {len(data.hashes)} hashes",
            "give each sample one pair and one hash: a sample that counts twice makes every interval too narrow",
        )
    return pairs


class Outputs(Sequence[Tensors]):
    """An engine's outputs for each feed, computed when asked for: a language model's logits of a whole split fit no memory."""

    def __init__(self, session: Session, feeds: Sequence[Tensors], name: str) -> None:
        self._session, self._feeds, self._name = session, feeds, name

    def __len__(self) -> int:
        return len(self._feeds)

    @overload
    def __getitem__(self, index: int) -> Tensors: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Tensors]: ...
    def __getitem__(self, index: int | slice) -> Tensors | Sequence[Tensors]:
        if isinstance(index, slice):
            return Outputs(self._session, self._feeds[index], self._name)
        self._session.bind(self._feeds[index])  # IndexError past the end: what ends a loop over a sequence
        self._session.step()
        outputs = {name: np.array(array) for name, array in self._session.read().items()}  # copies: sessions reuse their buffers
        for name, array in outputs.items():
            if np.issubdtype(array.dtype, np.floating) and not np.isfinite(array).all():
                bad = int(array.size - np.isfinite(array).sum())
                what = f"{self._name}: output {name!r} of feed {index} has {bad} of {array.size} values that are NaN or infinite"
                raise BadModel(what, "the precision does not hold this model's range: try another recipe")
        return outputs
