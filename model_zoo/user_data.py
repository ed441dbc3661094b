"""Labelled data of users: read without trust, checked, freed of duplicates, and split by the hash of each sample."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path

import numpy as np

from model_zoo.data import sample_hash
from model_zoo.facts import Split, Splits, Tensors
from tasks.errors import BadModel
from tasks.facts import TensorSpec

log = logging.getLogger("crossgrade")
SHARES = {"calibration": 0.15, "development": 0.4, "evaluation": 1.0}  # upper ends: 15 % / 25 % / 60 %
FEWEST = 30  # samples; with fewer, a split would be empty or a figure meaningless


@dataclass(frozen=True)
class Samples:
    """Raw samples by row: their hashes, their labels if there are any, and how rows become the inputs of one call."""

    hashes: tuple[str, ...]
    labels: np.ndarray | None
    feed: Callable[[np.ndarray], Tensors]


def nearest(name: str, known: Sequence[str]) -> str:
    """A hint for a name that does not exist."""
    near = get_close_matches(name, known, n=1, cutoff=0.5)
    return f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(known)}"


def first_line(error: BaseException) -> str:
    """What an error says first; its type where it says nothing."""
    return next(iter(str(error).splitlines()), "") or type(error).__name__


def array_samples(arrays: Mapping[str, np.ndarray], labels: np.ndarray | None, inputs: Sequence[TensorSpec], where: str) -> Samples:
    """Samples whose inputs are arrays with one row each.

    Raises:
        BadModel: an input is missing or unknown, lengths differ, values are not finite, or dtypes do not fit.
    """
    names = [one.name for one in inputs]
    for name in arrays:
        if name not in names:
            raise BadModel(f"{where} has {name!r}, which is no input of the model", nearest(name, [*names, "labels"]))
    for name in names:
        if name not in arrays:
            raise BadModel(f"{where} lacks the input {name!r}", nearest(name, list(arrays)))
    if labels is not None and not labels.ndim:
        raise BadModel(f"{where}: labels is a single value", "give one label for each sample")
    ready = {one.name: _fitting(one, arrays[one.name], where) for one in inputs}
    count = len(ready[names[0]])
    for name, array in {**ready, **({} if labels is None else {"labels": labels})}.items():
        if len(array) != count:
            raise BadModel(f"{where}: {name} has {len(array)} rows, but {names[0]} has {count}", "give one row for each sample")
    hashes = tuple(sample_hash(*(ready[name][row] for name in names)) for row in range(count))
    return Samples(hashes, labels, lambda rows: {name: ready[name][rows] for name in names})


def _fitting(spec: TensorSpec, array: np.ndarray, where: str) -> np.ndarray:
    if np.issubdtype(array.dtype, np.floating) and not np.isfinite(array).all():
        row = int(np.argwhere(~np.isfinite(array))[0][0])
        raise BadModel(f"{where}: {spec.name} is not finite in row {row}", "remove or repair NaN and infinite values")
    if not np.can_cast(array.dtype, spec.dtype, "same_kind"):
        raise BadModel(f"{where}: {spec.name} is {array.dtype}, but the model takes {spec.dtype}", "convert it before saving")
    shape = array.shape[1:]
    fits = len(shape) == len(spec.shape) - 1 and all(
        isinstance(want, str) or want == got for want, got in zip(spec.shape[1:], shape, strict=True)
    )
    if array.ndim == 0 or not fits:
        raise BadModel(
            f"{where}: {spec.name} has shape {array.shape}, but the model takes {spec.shape}", "the first axis counts the samples"
        )
    return _cast(spec, array, where)


def _cast(spec: TensorSpec, array: np.ndarray, where: str) -> np.ndarray:
    """The array in the model's type; a value that this would change into another is refused, rounding of fractions is not."""
    with np.errstate(over="ignore"):
        ready = array.astype(spec.dtype)
    lost = ready != array if ready.dtype.kind in "iu" else ~np.isfinite(ready) if ready.dtype.kind == "f" else np.zeros(1, bool)
    if lost.any():
        at = tuple(np.argwhere(lost)[0])
        raise BadModel(f"{where}: {spec.name} is {array[at]} in row {int(at[0])}, which {spec.dtype} cannot hold", "rescale or correct it")
    return ready


def checked(samples: Samples, where: str) -> Samples:
    """The same samples, each once.

    Raises:
        BadModel: there are too few, a label is missing, or one sample has two labels.
    """
    labels = samples.labels
    if labels is not None:
        _check_labels(labels, where)
    first: dict[str, int] = {}
    for row, sample in enumerate(samples.hashes):
        other = first.setdefault(sample, row)
        if labels is not None and not np.array_equal(labels[other], labels[row]):
            raise BadModel(f"{where}: rows {other} and {row} are the same sample with different labels", "correct one of them")
    if len(first) < FEWEST:
        raise BadModel(
            f"{where} holds {len(first)} different samples", f"give at least {FEWEST}; hundreds, to decide a margin of one point"
        )
    rows = np.array(list(first.values()))
    if dropped := len(samples.hashes) - len(rows):
        log.info("%s: %d duplicate samples dropped, so that none is in two splits", where, dropped)
    return replace(
        samples,
        hashes=tuple(first),
        labels=None if labels is None else labels[rows],
        feed=lambda chosen: samples.feed(rows[chosen]),
    )


def _check_labels(labels: np.ndarray, where: str) -> None:
    if labels.dtype.kind not in "biuf":
        raise BadModel(f"{where}: labels are {labels.dtype}, not numbers", "number the classes from 0, as the model's outputs are")
    bad = np.argwhere(~np.isfinite(labels.astype(np.float64)))
    if len(bad):
        raise BadModel(f"{where}: the label of row {int(bad[0][0])} is missing or not finite", "label every row")


def split_rows(samples: Samples, where: str) -> dict[str, np.ndarray]:
    """Rows of each split, by hash: a sample stays in its split when others are added, and calibration can never meet evaluation.

    Raises:
        BadModel: a split is empty.
    """
    position = np.array([int(sample[:8], 16) / 16**8 for sample in samples.hashes])
    split_of = np.searchsorted(list(SHARES.values()), position, side="right")
    rows = {name: np.flatnonzero(split_of == index) for index, name in enumerate(SHARES)}
    for name, found in rows.items():
        if not len(found):
            raise BadModel(f"{where}: no sample fell into the {name} split", "give more samples")
    return rows


def carve(samples: Samples, batch: int, where: str) -> Splits:
    """The three splits; calibration is fed one sample at a time, the others `batch`."""
    parts = {}
    for name, rows in split_rows(samples, where).items():
        size = 1 if name == "calibration" else batch
        parts[name] = Split(
            feeds=[samples.feed(rows[start : start + size]) for start in range(0, len(rows), size)],
            labels={} if samples.labels is None else {"labels": samples.labels[rows]},
            hashes=tuple(samples.hashes[row] for row in rows),
        )
    return Splits(**parts)


def inside(folder: Path, text: str) -> Path:
    """A path of a table: relative ones stay in the folder of the TOML file, others must be written out.

    Raises:
        BadModel: a relative path leaves the folder, or nothing is there.
    """
    try:
        path = Path(text).expanduser()
        if not path.is_absolute():
            if ".." in path.parts:
                raise BadModel(f"{text!r} leaves the folder {folder}", "move the file there, or write its absolute path")
            path = folder / path
        there = path.exists()
    except (OSError, RuntimeError, ValueError) as error:  # too long, a user that does not exist, a NUL
        raise BadModel(f"{text[:80]!r} is not a usable path: {first_line(error)[:120]}", "write the path of a file that is there") from None
    if not there:
        raise BadModel(f"{path} does not exist", "paths start at the folder of the TOML file")
    return path
