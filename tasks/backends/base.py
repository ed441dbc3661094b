"""The two protocols every runtime is put behind, and what all of them need."""

import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

import numpy as np

from tasks.errors import BadRequest, PipelineError, Unsupported
from tasks.facts import Cell, Placement, TensorSpec
from tasks.host import fingerprint
from tasks.optional import installed

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


MODULES: dict[str, str] = {"onnxruntime": "", "nncf": "intel"}  # toolkit -> the extra that brings it; "" is always there

ALIASES = {"amd64": "x86_64", "arm64": "aarch64"}  # one architecture, as systems name it


def refusal(cell: Cell, backend: Backend, modules: Mapping[str, str]) -> str | None:
    """Why a backend that runs on this machine's processor cannot run the cell.

    Args:
        cell: the square in question.
        backend: who asks.
        modules: what it imports, with the extra that installs each.
    """
    target, recipe = cell.target, cell.recipe
    if target.simulated:
        return f"{target.name} is simulated and {backend.name} is not: use the backend 'simulated' for it"
    if target.device != "cpu":
        return f"{backend.name} runs on processors here, and {target.name} is {target.vendor} {target.arch}: that needs its hardware"
    if wrong := _another_processor(target.arch):
        return f"{target.name} is {target.arch}, {wrong}: measure it on a machine that has it"
    if recipe.backends and backend.name not in recipe.backends:
        return f"recipe {recipe.name} is for {', '.join(recipe.backends)}, not for {backend.name}"
    if backend.wants == "pt2" and recipe.method != "none":
        return f"recipe {recipe.name} changes an ONNX graph and {backend.name} takes the torch program: use fp32, or an ONNX backend"
    toolkit: dict[str, str] = {} if recipe.toolkit == "none" else {recipe.toolkit: MODULES[recipe.toolkit]}
    return not_installed({**modules, **toolkit})


def _another_processor(arch: str) -> str | None:
    """What this machine's processor lacks of an arch such as x86_64 or x86_64-avx512vnni; None when it has all of it."""
    have = fingerprint()
    wanted, *features = arch.lower().split("-")
    machine = have["arch"].lower()
    if ALIASES.get(wanted, wanted) != ALIASES.get(machine, machine):
        return f"and this machine is {machine}"
    flags = {flag.replace("_", "") for flag in have["flags"].split()}
    lacking = [feature for feature in features if feature.replace("_", "") not in flags]
    return f"and this processor does not report {', '.join(lacking)}" if lacking else None


def not_installed(modules: Mapping[str, str]) -> str | None:
    """One sentence for the first module that is not here, with the command that installs it; None when all are."""
    for module, extra in modules.items():
        if not installed(module):
            return f"{module} is not installed: pip install -c deployments/constraints.txt -e '.{f'[{extra}]' if extra else ''}'"
    return None


@contextmanager
def in_words_of(toolkit: str, doing: str) -> Iterator[None]:
    """Whatever a toolkit raises becomes Unsupported, with the first lines of its own words."""
    try:
        yield
    except PipelineError:
        raise
    except Exception as error:
        raise Unsupported(f"{toolkit} failed while {doing}: {words_of(error)}") from error


def words_of(error: BaseException, limit: int = 300) -> str:
    """An error's own words on one line, shortened."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= limit else text[: limit - 3] + "..."


def checked(inputs: Tensors, specs: Sequence[TensorSpec]) -> dict[str, np.ndarray]:
    """Contiguous inputs in the order of `specs`; BadRequest when a name, dtype or fixed dimension is not what the engine takes."""
    wanted = ", ".join(f"{spec.name} {spec.dtype}{list(spec.shape)}" for spec in specs)
    if set(inputs) != {spec.name for spec in specs}:
        raise BadRequest(f"the engine was given inputs {', '.join(sorted(inputs)) or 'of no name'}", f"it takes {wanted}")
    for spec in specs:
        array = inputs[spec.name]
        if str(array.dtype) != spec.dtype:
            raise BadRequest(f"input {spec.name} is {array.dtype}", f"the engine takes {wanted}")
        fits = all(isinstance(size, str) or size == got for size, got in zip(spec.shape, array.shape, strict=False))
        if array.ndim != len(spec.shape) or not fits:
            raise BadRequest(f"input {spec.name} has shape {list(array.shape)}", f"the engine takes {wanted}")
    return {spec.name: np.ascontiguousarray(inputs[spec.name]) for spec in specs}


@contextmanager
def quiet(*loggers: str) -> Iterator[None]:
    """Keep toolkits from talking, and from changing how everyone else logs: some set the root logger to INFO when imported."""
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    levels = {name: logging.getLogger(name).level for name in loggers}
    try:
        for name in loggers:
            logging.getLogger(name).setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        root.setLevel(level)
        root.handlers[:] = handlers
        for name, old in levels.items():
            logging.getLogger(name).setLevel(old)
