"""The two protocols every runtime is put behind."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

import numpy as np

from tasks.facts import Cell, Placement

Tensors = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Built:
    """What a build wrote: one file, its format, and notes for the lineage."""

    format: str
    notes: dict[str, str] = field(default_factory=dict)


class Session(Protocol):
    """A loaded engine. Only `step` is timed."""

    placement: Placement

    def bind(self, inputs: Tensors) -> None:
        """Stage the inputs in host memory; not timed."""

    def step(self) -> None:
        """One inference, host memory to host memory; returns when the device is done and outputs are in host memory."""

    def read(self) -> dict[str, np.ndarray]:
        """Outputs of the last step by name; not timed."""


class Backend(Protocol):
    """One runtime. Found by name in `tasks.backends`, imported on first use."""

    name: str
    wants: Literal["onnx", "pt2"]
    distributions: tuple[str, ...]  # whose versions belong into every cache key and every host fact

    def missing(self, cell: Cell) -> str | None:
        """Why this cell cannot run here, in one sentence with the way out; None when it can. Imports nothing heavy."""

    def build(self, source: Path, cell: Cell, out: Path) -> Built:
        """Compile `source` (ONNX or pt2) for the cell into the single file `out`. Raises Unsupported."""

    def open(self, engine: Path, cell: Cell) -> AbstractContextManager[Session]:
        """Load the engine, read back what was really got (WrongDevice when it is another device)."""
