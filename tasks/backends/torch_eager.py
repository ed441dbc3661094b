"""PyTorch as researchers run it: the exported program, operator by operator, in inference mode. The engine is the program's file."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np

from tasks.backends import pt2
from tasks.backends.base import Built, Tensors, checked, in_words_of, refusal, words_of
from tasks.errors import Unsupported, WrongDevice
from tasks.facts import Cell, Placement, TensorSpec


class TorchEagerBackend:
    """The uncompiled reference."""

    name = "torch-eager"
    wants: Literal["onnx", "pt2"] = "pt2"
    distributions: tuple[str, ...] = ("torch",)

    def missing(self, cell: Cell) -> str | None:
        return refusal(cell, self, {"torch": ""})

    def build(self, source: Path, cell: Cell, out: Path) -> Built:
        """Copy the program and load it once."""
        shutil.copyfile(source, out)
        with self.open(out, cell) as session:
            return Built(format="pt2", notes={"executes": session.placement.precision})

    @contextmanager
    def open(self, engine: Path, cell: Cell) -> Iterator["TorchSession"]:
        with in_words_of("torch", "loading the program"):
            program, ports = pt2.load(engine)
            operators = sum(node.op == "call_function" for node in program.graph.nodes)
            module = program.module(check_guards=False)  # export has checked the shapes, and a service would run the module itself
        with threads(cell.target.threads) as got:
            placement = Placement(
                device=cell.target.device,
                providers=("eager",),
                precision="fp32",
                threads=got,
                nodes=operators,
                nodes_elsewhere=0,
                elsewhere=(),
            )
            yield TorchSession(module, *pt2.parse_ports(ports), placement)


class TorchSession:
    """A callable on tensors. The copy of the inputs from host memory is inside `step`, as it is for every backend."""

    def __init__(self, run: Callable[..., Any], inputs: Sequence[TensorSpec], outputs: Sequence[str], placement: Placement) -> None:
        self.placement = placement
        self._run, self._specs, self._names = run, inputs, outputs
        self._inputs: dict[str, np.ndarray] = {}
        self._outputs: dict[str, np.ndarray] = {}

    def bind(self, inputs: Tensors) -> None:
        self._inputs = checked(inputs, self._specs)

    def step(self) -> None:
        import torch

        try:
            with torch.inference_mode():
                self._outputs = pt2.arrays(self._run(*pt2.tensors(self._inputs, self._specs)), self._names)
        except Exception as error:
            raise Unsupported(f"torch failed to run the program: {words_of(error)}") from error

    def read(self) -> dict[str, np.ndarray]:
        return dict(self._outputs)


@contextmanager
def threads(wanted: int) -> Iterator[int]:
    """Torch's threads are the process's, so they are set for a session and given back after it."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(wanted)
    try:
        if torch.get_num_threads() != wanted:
            raise WrongDevice(
                f"asked torch for {wanted} threads, got {torch.get_num_threads()}", "unset OMP_NUM_THREADS and MKL_NUM_THREADS"
            )
        yield wanted
    finally:
        torch.set_num_threads(before)


BACKEND = TorchEagerBackend()
