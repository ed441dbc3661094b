"""Torch programs as files: torch.export's archive with the names of inputs and outputs beside the program.

`torch.export.load` may unpickle, so only files of our own store are ever loaded: it checks their digest, and export wrote them.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tasks.backends.base import Tensors
from tasks.facts import TensorSpec

if TYPE_CHECKING:
    import torch

PORTS = "ports.json"


def save(program: "torch.export.ExportedProgram", inputs: Sequence[TensorSpec], outputs: Sequence[str], path: Path) -> None:
    """Write the program, its inputs in positional order and its outputs in order."""
    import torch

    torch.export.save(program, path, extra_files={PORTS: dump_ports(inputs, outputs)})


def load(path: Path) -> tuple["torch.export.ExportedProgram", str]:
    """The program and its ports as text; see `parse_ports`."""
    import torch

    extra = {PORTS: ""}
    with path.open("rb") as file:  # a path would have to end in .pt2, and the store names files by their digest
        return torch.export.load(file, extra_files=extra), extra[PORTS]


def dump_ports(inputs: Sequence[TensorSpec], outputs: Sequence[str]) -> str:
    """Inputs and outputs as JSON."""
    return json.dumps({"inputs": [spec.model_dump(mode="json") for spec in inputs], "outputs": list(outputs)})


def parse_ports(text: str) -> tuple[tuple[TensorSpec, ...], tuple[str, ...]]:
    """(inputs in positional order, output names)."""
    ports = json.loads(text)
    return tuple(TensorSpec.model_validate(spec) for spec in ports["inputs"]), tuple(ports["outputs"])


def tensors(inputs: Tensors, specs: Sequence[TensorSpec]) -> tuple["torch.Tensor", ...]:
    """Positional tensors that own their memory: the copy from host memory that a service would pay."""
    import torch

    return tuple(torch.tensor(inputs[spec.name]) for spec in specs)


def arrays(result: Any, names: Sequence[str]) -> dict[str, np.ndarray]:
    """A module's answer (tensor, sequence or mapping of tensors) by output name."""
    if isinstance(result, dict):
        result = [result[name] for name in names]
    values = list(result) if isinstance(result, tuple | list) else [result]
    return {name: value.numpy() for name, value in zip(names, values, strict=True)}
