"""PyTorch compiled ahead of time: AOTInductor turns the exported program into a native library, packed in one file."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from tasks.backends import pt2
from tasks.backends.base import Built, in_words_of, quiet, refusal
from tasks.backends.torch_eager import TorchSession, threads
from tasks.facts import Cell, Placement

PORTS = "ports"  # metadata of the package


class InductorBackend:
    """torch.compile's compiler, without Python at run time."""

    name = "inductor"
    wants: Literal["onnx", "pt2"] = "pt2"
    distributions: tuple[str, ...] = ("torch",)

    def missing(self, cell: Cell) -> str | None:
        if (why := refusal(cell, self, {"torch": ""})) is not None:
            return why
        return None if shutil.which("g++") else "AOTInductor compiles C++ and g++ is not installed: apt-get install g++"

    def build(self, source: Path, cell: Cell, out: Path) -> Built:
        """Compile for this processor and the target's threads, which the generated code has built in."""
        import torch
        from torch._inductor import config

        with in_words_of("AOTInductor", "compiling the program"), quiet("torch"), threads(cell.target.threads):
            program, ports = pt2.load(source)
            package = out.with_suffix(".pt2")
            # One compiling process: workers would fork from ours and outlive it.
            with config.patch(compile_threads=1), torch.inference_mode():
                torch._inductor.aoti_compile_and_package(
                    program, package_path=str(package), inductor_configs={"aot_inductor.metadata": {PORTS: ports}}
                )
            package.rename(out)
        with self.open(out, cell) as session:
            return Built(format="aoti", notes={"executes": session.placement.precision})

    @contextmanager
    def open(self, engine: Path, cell: Cell) -> Iterator[TorchSession]:
        import torch

        with in_words_of("AOTInductor", "loading the library"):
            with engine.open("rb") as file:
                compiled = torch._inductor.aoti_load_package(file)
            ports = compiled.get_metadata()[PORTS]
        with threads(cell.target.threads) as got:
            placement = Placement(device=cell.target.device, providers=("aot-inductor",), precision="fp32", threads=got, elsewhere=())
            yield TorchSession(compiled, *pt2.parse_ports(ports), placement)


BACKEND = InductorBackend()
