"""What an entry of the zoo is. One file per entry; users add theirs by a file, or by a TOML table (`model_zoo/user.py`).

An entry knows its weights, its labelled data and how outputs are scored. It knows nothing of backends, timing or money.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from tasks.facts import ModelSpec
from tasks.store import Store

if TYPE_CHECKING:
    import torch

Tensors = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Split:
    """Labelled data ready to run.

    Attributes:
        feeds: inputs of one call each, batch dimension included; what `Session.bind` takes.
        labels: whatever `Entry.score` needs, as arrays.
        hashes: sha256 of each raw sample (before padding): what proves that splits are disjoint.
    """

    feeds: Sequence[Tensors]
    labels: Mapping[str, np.ndarray]
    hashes: tuple[str, ...]


@dataclass(frozen=True)
class Splits:
    """Calibration (never scored), development (a recipe is chosen on it), evaluation (judged on it once)."""

    calibration: Split
    development: Split
    evaluation: Split


class Entry(Protocol):
    """A model of the zoo. Importing an entry's module must not import torch or transformers."""

    spec: ModelSpec

    def onnx(self, store: Store) -> Path | None:
        """The ONNX file that is the source of this model, or None when torch is. Verifies sha256."""

    def torch_module(self, store: Store) -> "torch.nn.Module | None":
        """The model in eval mode with its real weights, or None. Trains once (weights cached in the store) where there are none to load."""

    def dynamic_axes(self) -> dict[str, dict[int, str]]:
        """input or output name -> {axis: dimension name}; what export must keep dynamic."""

    def splits(self, store: Store) -> Splits:
        """The three disjoint splits. Deterministic."""

    def requests(self, store: Store, batch: int, count: int) -> list[Tensors]:
        """`count` different feeds of `batch` production-like requests, for timing (from calibration data, never evaluation)."""

    def score(self, outputs: Sequence[Tensors], labels: Mapping[str, np.ndarray]) -> np.ndarray:
        """float64 (samples, 2): numerator and denominator of the metric per sample, from the outputs of the feeds in order."""


def data_digest(split: Split) -> str:
    """sha256 over the hashes of a split's samples, in order: what binds a score to the data it was made on."""
    return hashlib.sha256("\n".join(split.hashes).encode()).hexdigest()
