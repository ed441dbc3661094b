"""Where users' models come from: an .onnx file, a torch function (`user_torch.py`), or Hugging Face (`huggingface.py`)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from model_zoo import onnx_files
from model_zoo.facts import Entry, Tensors
from model_zoo.user import ModelTable
from model_zoo.user_data import inside
from tasks.errors import BadModel, BadRequest
from tasks.facts import TensorSpec
from tasks.store import Store, sha256_of

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Source:
    """A model before its data: what it takes and gives, which bytes it is, and how to get at it."""

    origin: str
    files: dict[str, str]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[str, ...]
    axes: dict[str, dict[int, str]]
    onnx: Callable[[Store], Path] | None = None
    module: "Callable[[], torch.nn.Module] | None" = None
    classes: dict[str, int] = field(default_factory=dict)
    tokenize: Callable[[Sequence[str]], Tensors] | None = None
    parameters: int | None = None


def entry_of(name: str, table: ModelTable, folder: Path) -> Entry:
    """The entry of a checked table whose relative paths start at `folder`."""
    from model_zoo import user_torch
    from model_zoo.user_entry import UserEntry

    if table.torch is not None:
        built, sources = user_torch.built(table.torch, folder)
        if hasattr(built, "spec"):
            return user_torch.pinned_entry(built, name, table, sources)
        if table.data is None:
            raise BadRequest(f"[{name}] has no data", "name an .npz, a .csv, a .parquet or a folder of images")
        return UserEntry(name, table, folder, user_torch.torch_source(built, sources, table, folder))
    if table.onnx is not None:
        return UserEntry(name, table, folder, onnx_source(table, folder))
    from model_zoo import huggingface

    source, ready = huggingface.source(table, folder)
    return UserEntry(name, ready, folder, source)


def onnx_source(table: ModelTable, folder: Path) -> Source:
    """An .onnx file, looked at before anything loads it.

    Raises:
        BadModel: as `onnx_files.inspected`, or its sha256 is another than the table pins.
    """
    path = inside(folder, table.onnx or "")
    model = onnx_files.inspected(path)
    found = sha256_of(path)
    if table.sha256 not in (None, found):
        raise BadModel(f"{path.name} has sha256 {found}, but {table.sha256} is pinned", "pin the new file, or bring the old one back")
    files = {path.name: found} | {place: sha256_of(path.parent / place) for place in onnx_files.external_data(model.graph)}
    inputs, outputs = onnx_files.signature(model)
    return Source(
        origin=path.name,
        files=files,
        inputs=inputs,
        outputs=tuple(one.name for one in outputs),
        axes={one.name: {axis: size for axis, size in enumerate(one.shape) if isinstance(size, str)} for one in (*inputs, *outputs)},
        onnx=lambda store: onnx_files.upgraded(path, store),
        parameters=sum(int(np.prod(tensor.dims)) for tensor in model.graph.initializer),
    )
