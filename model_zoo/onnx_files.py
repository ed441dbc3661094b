"""ONNX files from outside: looked at before anything loads them, and raised to an opset that quantizers can write."""

import time
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from tasks.errors import BadModel
from tasks.facts import Artifact, TensorSpec
from tasks.optional import version_of
from tasks.store import Store, sha256_of

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, ValueInfoProto

MIN_OPSET = 13  # DequantizeLinear has its `axis` since 13: below, INT8 per channel cannot be written
OPSET = 17  # what older files are raised to


def inspected(path: Path) -> "ModelProto":
    """The graph of a file, without its external data, after checks that loading it can only read inside its own folder.

    Raises:
        BadModel: the file is missing, truncated, not ONNX, not valid, or names data outside its folder.
    """
    import onnx
    from google.protobuf.message import DecodeError

    if not path.is_file():
        raise BadModel(f"{path} is not a file", "give the path of an .onnx file, relative to the TOML file")
    try:
        model = onnx.load(path, load_external_data=False)
    except DecodeError:
        raise BadModel(
            f"{path.name} is truncated or not an ONNX file", "copy it again, and compare its sha256 with the original's"
        ) from None
    if not model.graph.node or not model.opset_import:
        raise BadModel(f"{path.name} holds no graph", "it is truncated or not an ONNX file: copy it again")
    for place in external_data(model.graph):
        _check_inside(path, place)
    try:
        onnx.checker.check_model(str(path))
    except onnx.checker.ValidationError as error:
        raise BadModel(f"{path.name} is not valid ONNX: {str(error).splitlines()[0]}", "export it again") from error
    return model


def external_data(graph: "GraphProto") -> list[str]:
    """The files that tensors of a graph, its attributes and its subgraphs are kept in."""
    tensors = list(graph.initializer)
    tensors += [part for sparse in graph.sparse_initializer for part in (sparse.values, sparse.indices)]
    inner: list[str] = []
    for node in graph.node:
        for attribute in node.attribute:
            tensors += [attribute.t, *attribute.tensors]
            for subgraph in ([attribute.g] if attribute.HasField("g") else []) + list(attribute.graphs):
                inner += external_data(subgraph)
    return inner + [item.value for tensor in tensors for item in tensor.external_data if item.key == "location"]


def _check_inside(path: Path, place: str) -> None:
    folder = path.resolve().parent
    plain = PurePosixPath(place.replace("\\", "/"))
    data = (folder / plain).resolve()
    if plain.is_absolute() or ".." in plain.parts or not data.is_relative_to(folder):
        raise BadModel(f"{path.name} keeps tensors in {place!r}, outside its folder", "save it again with its data file beside it")
    if not data.is_file():
        raise BadModel(f"{path.name} keeps tensors in {place!r}, which is missing", "copy the data file beside it")


def opset(model: "ModelProto") -> int:
    """The version of the default operator set."""
    return next((item.version for item in model.opset_import if item.domain in ("", "ai.onnx")), 0)


def upgraded(path: Path, store: Store) -> Path:
    """The same model in one file, raised to opset 17 where its own is below 13; converted once per store.

    Raises:
        BadModel: as `inspected`, or onnx cannot convert the file.
    """
    model = inspected(path)
    places = sorted(set(external_data(model.graph)))
    old = opset(model) < MIN_OPSET
    if not old and not places:
        return path
    key = {
        "source": sha256_of(path),
        "data": [sha256_of(path.parent / place) for place in places],
        "opset": OPSET,
        "onnx": version_of("onnx"),
    }
    return store.path(store.cached("opset", key, Artifact, lambda: _one_file(path, old, store)).sha256)


def _one_file(path: Path, old: bool, store: Store) -> Artifact:
    import onnx
    from google.protobuf.message import EncodeError
    from onnx import version_converter

    started = time.perf_counter_ns()
    whole = onnx.load(path)
    before = opset(whole)
    try:
        whole = version_converter.convert_version(whole, OPSET) if old else whole
        data = whole.SerializeToString()
    except (RuntimeError, ValueError, EncodeError) as error:
        raise BadModel(f"{path.name} cannot be made one file of opset {OPSET}: {error}", "export it again, below 2 GiB") from error
    return Artifact(
        kind="weights",
        format="onnx",
        sha256=store.put(data),
        size_bytes=len(data),
        tools={"onnx": version_of("onnx")},
        seconds=(time.perf_counter_ns() - started) / 1e9,
        notes={"opset": f"{before} -> {opset(whole)}"},
    )


def signature(model: "ModelProto") -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    """Inputs that must be given, and outputs; a dimension without a name gets one, `batch` when it is the first."""
    kept = {tensor.name for tensor in model.graph.initializer}
    inputs = tuple(_tensor_spec(one) for one in model.graph.input if one.name not in kept)
    return inputs, tuple(_tensor_spec(one) for one in model.graph.output)


def _tensor_spec(value: "ValueInfoProto") -> TensorSpec:
    from onnx import helper

    tensor = value.type.tensor_type
    shape = [
        dim.dim_value if dim.HasField("dim_value") else dim.dim_param or ("batch" if axis == 0 else f"{value.name}_{axis}")
        for axis, dim in enumerate(tensor.shape.dim)
    ]
    return TensorSpec(name=value.name, dtype=str(helper.tensor_dtype_to_np_dtype(tensor.elem_type)), shape=tuple(shape))
