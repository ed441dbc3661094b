"""Models that a user's torch function builds. Their code is as much the model as their weights: both stand in its digest."""

import copy
import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module, invalidate_caches
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from model_zoo.data import sample_hash
from model_zoo.facts import Entry
from model_zoo.user import ModelTable
from model_zoo.user_data import first_line, inside
from model_zoo.user_files import npz_arrays
from model_zoo.user_sources import Source
from tasks.errors import BadModel, BadRequest, PipelineError
from tasks.facts import ModelSpec, TensorSpec, digest_of

if TYPE_CHECKING:
    import torch

SOURCES = "__crossgrade_sources__"  # on an imported module: what its folder held when it was imported


def built(reference: str, folder: Path) -> tuple[Any, str]:
    """What the user's function returns, and the digest of its sources. It is the user's own code, beside the TOML file or installed.

    Raises:
        BadRequest: there is no such function, or its file changed after this process imported it.
        BadModel: the module or the function fails in any way, sys.exit() included.
    """
    module_name, _, function_name = reference.partition(":")
    if not module_name or not function_name:
        raise BadRequest(f"torch = {reference!r} is not 'module:function'", "write for example 'my_package.models:build'")
    with _importable(folder):
        try:
            module = import_module(module_name)
            sources = _sources(module, reference)
            function = getattr(module, function_name, None)
            if function is None:
                raise BadRequest(f"torch = {reference!r} cannot be imported: there is no {function_name!r}", "name one of its functions")
            return function(), sources
        except PipelineError:
            raise
        except ModuleNotFoundError as error:
            where = f"put the module beside the TOML file in {folder}"
            raise BadRequest(f"torch = {reference!r} cannot be imported: {error}", where) from error
        except (Exception, SystemExit) as error:
            raise BadModel(
                f"torch = {reference!r} ends in {type(error).__name__}: {first_line(error)}", "run that function alone, and correct it"
            ) from error


def pinned_entry(entry: Any, name: str, table: ModelTable, sources: str) -> Entry:  # noqa: ANN401
    """A copy of a user's own entry whose spec holds the digests of its table and its code, so that a change of either is another model.

    Raises:
        BadRequest: the entry has another name than its table.
        BadModel: its `spec` is no ModelSpec, or cannot be set.
    """
    if not isinstance(entry.spec, ModelSpec):
        raise BadModel(f"[{name}] torch = {table.torch!r} returns an entry without a ModelSpec", "model_zoo/facts.py describes entries")
    if entry.spec.id != name:
        raise BadRequest(f"[{name}] torch = {table.torch!r} returns the entry {entry.spec.id!r}", "give both the same name")
    pinned = copy.copy(entry)
    files = {**entry.spec.files, "sources": sources, "table": table_digest(table)}
    try:
        object.__setattr__(pinned, "spec", entry.spec.model_copy(update={"files": files}))
    except AttributeError as error:
        raise BadModel(f"[{name}] spec of {type(entry).__name__} cannot be set", "make it a plain attribute") from error
    return pinned


def table_digest(table: ModelTable) -> str:
    """sha256 of all that a table says: another label, output or size is another model to judge."""
    return digest_of(table.model_dump(mode="json"))


def torch_source(module: Any, sources: str, table: ModelTable, folder: Path) -> Source:  # noqa: ANN401
    """A module that a user's function built: its inputs are named by `forward`, their shapes follow the data.

    Raises:
        BadModel: the function returned something else, or the data do not fit `forward`.
    """
    import torch

    if not isinstance(module, torch.nn.Module):
        raise BadModel(f"{table.torch} returned {type(module).__name__}", "return a torch.nn.Module, or an object like an entry of the zoo")
    module = module.eval()
    parameters = inspect.signature(module.forward).parameters.values()
    names = [one.name for one in parameters if one.default is one.empty]
    inputs = tuple(_inputs_from_data(names, table, folder))
    count = _count_outputs(module, inputs, str(table.torch))
    outputs = ("output",) if count == 1 else tuple(f"output_{number}" for number in range(count))
    return Source(
        origin=str(table.torch),
        files={"state_dict": _state_digest(module), "sources": sources},
        inputs=inputs,
        outputs=outputs,
        axes={name: {0: "batch"} for name in (*names, *outputs)},
        module=lambda: module,
        parameters=sum(tensor.numel() for tensor in module.parameters()),
    )


def _count_outputs(module: "torch.nn.Module", inputs: tuple[TensorSpec, ...], reference: str) -> int:
    import torch

    shapes = ", ".join(f"{one.name} {one.shape}" for one in inputs)
    try:
        example = [torch.from_numpy(np.zeros((2, *(int(size) for size in one.shape[1:])), one.dtype)) for one in inputs]
        with torch.no_grad():
            given = module(*example)
    except (Exception, SystemExit) as error:  # forward() is the user's code
        raise BadModel(
            f"{reference} does not run on {shapes}: {first_line(error)}", "name the data as forward() names its inputs"
        ) from error
    parts = given if isinstance(given, tuple) else (given,)
    if not parts or not all(isinstance(part, torch.Tensor) for part in parts):
        raise BadModel(f"{reference} gives {type(given).__name__}", "let forward() return a tensor, or a tuple of tensors")
    return len(parts)


def _state_digest(module: "torch.nn.Module") -> str:
    """sha256 of parameters and buffers, also of those that state_dict() leaves out; by bytes, because numpy knows no bfloat16."""
    import torch

    state = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    parts: list[str | bytes | np.ndarray] = []
    for name, tensor in sorted(state.items()):
        data = tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()
        parts += [name, f"{tensor.dtype}{tuple(tensor.shape)}", data]
    return sample_hash(*parts)


def _inputs_from_data(names: list[str], table: ModelTable, folder: Path) -> Iterator[TensorSpec]:
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


def _sources(module: ModuleType, reference: str) -> str:
    """sha256 of every .py in the folder of a module's file: what it imports from there counts, and what it does not does no harm.

    Python keeps a module as it was imported, so its sources may not change before the process ends.
    """
    if not getattr(module, "__file__", None):
        raise BadRequest(f"torch = {reference!r} names a folder", "name a module, which is a file")
    files = sorted(Path(str(module.__file__)).parent.glob("*.py"))
    found = sample_hash(*(part for path in files for part in (path.name, path.read_bytes())))
    if vars(module).setdefault(SOURCES, found) != found:
        raise BadRequest(f"torch = {reference!r}: sources in {files[0].parent} changed after they were imported", "start Crossgrade again")
    return found


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    sys.path.insert(0, str(folder))
    invalidate_caches()
    try:
        yield
    finally:
        if str(folder) in sys.path:  # the user's module may have removed it
            sys.path.remove(str(folder))
