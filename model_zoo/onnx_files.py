"""ONNX files from outside: looked at before anything loads them, and raised to an opset that quantizers can write."""

import time
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from tasks.errors import BadModel
from tasks.facts import Artifact
from tasks.optional import version_of
from tasks.store import Store, sha256_of

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto

MIN_OPSET = 13  # DequantizeLinear has its `axis` since 13: below, INT8 per channel cannot be written


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


def upgraded(path: Path, version: int, store: Store) -> Path:
    """The same model, in one file, at opset `version` or later; converted once per store.

    Raises:
        BadModel: as `inspected`, or onnx cannot convert the file.
    """
    import onnx
    from onnx import version_converter

    model = inspected(path)
    if opset(model) >= version and not external_data(model.graph):
        return path

    def convert() -> Artifact:
        started = time.perf_counter_ns()
        whole = onnx.load(path)
        if opset(model) < version:
            try:
                whole = version_converter.convert_version(whole, version)
            except (RuntimeError, ValueError) as error:
                raise BadModel(
                    f"{path.name} cannot be raised from opset {opset(model)} to {version}: {error}", "export it again"
                ) from error
        data = whole.SerializeToString()
        return Artifact(
            kind="weights",
            format="onnx",
            sha256=store.put(data),
            size_bytes=len(data),
            tools={"onnx": version_of("onnx")},
            seconds=(time.perf_counter_ns() - started) / 1e9,
            notes={"opset": f"{opset(model)} -> {version}"},
        )

    key = {"source": [sha256_of(path)], "data": [sha256_of(path.parent / place) for place in sorted(set(external_data(model.graph)))]}
    return store.path(store.cached("opset", {**key, "opset": version, "onnx": version_of("onnx")}, Artifact, convert).sha256)
