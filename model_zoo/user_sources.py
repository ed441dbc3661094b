"""Where users' models come from: an .onnx file, a torch function, or Hugging Face (`model_zoo/huggingface.py`)."""

import inspect
import sys
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from model_zoo import onnx_files
from model_zoo.data import sample_hash
from model_zoo.facts import Entry, Tensors
from model_zoo.user import ModelTable
from model_zoo.user_data import inside
from model_zoo.user_files import npz_arrays
from tasks.errors import BadModel, BadRequest
from tasks.facts import TensorSpec
from tasks.store import Store, sha256_of

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    from model_zoo.user_entry import UserEntry

    if table.torch is not None:
        built = _call(table.torch, folder)
        if hasattr(built, "spec"):
            if built.spec.id != name:
                raise BadRequest(f"[{name}] torch = {table.torch!r} returns the entry {built.spec.id!r}", "give both the same name")
            return built
        if table.data is None:
            raise BadRequest(f"[{name}] has no data", "name an .npz, a .csv, a .parquet or a folder of images")
        return UserEntry(name, table, folder, torch_source(built, table, folder))
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


def torch_source(built: Any, table: ModelTable, folder: Path) -> Source:  # noqa: ANN401
    """A module that a user's function built: its inputs are named by `forward`, their shapes follow the data.

    Raises:
        BadModel: the function returned something else, or the data do not fit `forward`.
    """
    import torch

    if not isinstance(built, torch.nn.Module):
        raise BadModel(f"{table.torch} returned {type(built).__name__}", "return a torch.nn.Module, or an object like an entry of the zoo")
    module = built.eval()
    parameters = inspect.signature(module.forward).parameters.values()
    names = [one.name for one in parameters if one.default is one.empty]
    inputs = tuple(_inputs_from_data(names, table, folder))
    example = [torch.from_numpy(np.zeros((2, *(int(size) for size in one.shape[1:])), one.dtype)) for one in inputs]
    try:
        with torch.no_grad():
            given = module(*example)
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        shapes = ", ".join(f"{one.name} {one.shape}" for one in inputs)
        raise BadModel(
            f"{table.torch} does not run on {shapes}: {str(error).splitlines()[0]}", "name the data as forward() names its inputs"
        ) from error
    count = len(given) if isinstance(given, tuple) else 1
    outputs = ("output",) if count == 1 else tuple(f"output_{number}" for number in range(count))
    state = sorted(module.state_dict().items())
    return Source(
        origin=str(table.torch),
        files={"state_dict": sample_hash(*(part for name, tensor in state for part in (name, tensor.cpu().numpy())))},
        inputs=inputs,
        outputs=outputs,
        axes={name: {0: "batch"} for name in (*names, *outputs)},
        module=lambda: module,
        parameters=sum(tensor.numel() for tensor in module.parameters()),
    )


def _inputs_from_data(names: list[str], table: ModelTable, folder: Path) -> "Iterator[TensorSpec]":
    path = inside(folder, table.data or "")
    arrays = npz_arrays(path) if path.suffix == ".npz" else {}
    for name in names:
        if path.is_dir():
            if table.size is None:
                raise BadModel(f"{table.torch} does not say which images it takes", "add size = [height, width]")
            yield TensorSpec(name=name, dtype="float32", shape=("batch", len(table.mean) or 3, *table.size))
        elif name in arrays:
            dtype = "float32" if arrays[name].dtype == np.float64 else str(arrays[name].dtype)
            yield TensorSpec(name=name, dtype=dtype, shape=("batch", *arrays[name].shape[1:]))
        elif path.suffix == ".npz":
            raise BadModel(f"{path.name} lacks the input {name!r} of {table.torch}", f"it holds: {', '.join(arrays)}")
        else:
            columns = table.columns.get(name, name)
            yield TensorSpec(name=name, dtype="float32", shape=("batch",) if isinstance(columns, str) else ("batch", len(columns)))


def _call(reference: str, folder: Path) -> Any:  # noqa: ANN401
    """What the user's function returns. It is the user's own code: it may import what stands beside the TOML file."""
    module_name, _, function_name = reference.partition(":")
    if not module_name or not function_name:
        raise BadRequest(f"torch = {reference!r} is not 'module:function'", "write for example 'my_package.models:build'")
    with _importable(folder):
        try:
            function = getattr(import_module(module_name), function_name)
        except (ImportError, AttributeError) as error:
            raise BadRequest(
                f"torch = {reference!r} cannot be imported: {error}", f"put the module beside the TOML file in {folder}"
            ) from error
        return function()


@contextmanager
def _importable(folder: Path) -> "Iterator[None]":
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
