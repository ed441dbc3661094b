"""A model as a file that backends build from: ONNX, or torch's own program (pt2). Checked against the model itself."""

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from model_zoo.facts import Entry, Tensors
from tasks import parity
from tasks.backends import pt2
from tasks.backends.base import in_words_of, quiet, words_of
from tasks.errors import BadModel, Unsupported
from tasks.facts import Artifact
from tasks.optional import version_of
from tasks.store import Store, sha256_of

if TYPE_CHECKING:
    import onnx
    import torch

CODE = 2  # raise it when what this file writes changes: it is part of the cache key
OPSET = 18
MINIMUM_OPSET = 17  # below 13 there are no scales per channel, below 17 no LayerNormalization
TOOLS = {"onnx": ("torch", "onnx", "onnxscript", "onnxruntime"), "pt2": ("torch",)}
Pairs = list[tuple[Tensors, Tensors]]
log = logging.getLogger("crossgrade")


def export(entry: Entry, wants: Literal["onnx", "pt2"], store: Store) -> Artifact:
    """The model as ONNX or as a torch program with its dynamic dimensions kept; made once.

    Raises:
        Unsupported: the model has no torch program, or a dynamic dimension cannot be kept.
        BadModel: the file is not valid ONNX, or what was exported does not compute what the model computes.
    """
    shipped = entry.onnx(store) if wants == "onnx" else None
    tools = {name: version_of(name) for name in TOOLS[wants]}
    source = sha256_of(shipped) if shipped else None
    key = {"entry": entry.spec.digest, "wants": wants, "source": source, "tools": tools, "code": CODE}

    def make() -> Artifact:
        started = time.perf_counter_ns()
        with store.scratch() as folder:
            out = folder / f"{entry.spec.id}.{wants}"
            notes = _adopt(entry, shipped, out, store) if shipped else _from_torch(entry, wants, out, store)
            sha256 = store.put_file(out)
            size = out.stat().st_size
        seconds = (time.perf_counter_ns() - started) / 1e9
        log.info("exported %s to %s in %.1f s: %s", entry.spec.id, wants, seconds, ", ".join(f"{k} {v}" for k, v in notes.items()))
        parent = store.put_file(shipped) if shipped else None
        return Artifact(
            kind="exported", format=wants, sha256=sha256, size_bytes=size, parent=parent, tools=tools, seconds=seconds, notes=notes
        )

    return store.cached("export", key, Artifact, make)


# ------------------------------------------------------------------------------------------------ from torch


def _from_torch(entry: Entry, wants: str, out: Path, store: Store) -> dict[str, str]:
    module = entry.torch_module(store)
    if module is None:
        raise Unsupported(f"{entry.spec.id} has no torch program, only an ONNX graph", "choose a backend that takes ONNX")
    inputs = parity.feeds(entry, store)
    pairs = parity.references(lambda feed: _eager(module, entry, feed), inputs, real=len(inputs) - 2)
    exporters = (
        {"torch.export": _program_file} if wants == "pt2" else {"torch.onnx dynamo": _dynamo, "torch.onnx torchscript": _torchscript}
    )
    refusals: dict[str, str] = {}
    for name, exporter in exporters.items():
        try:
            with in_words_of(name, f"exporting {entry.spec.id}"), quiet("torch.onnx", "onnxscript", "onnx_ir"):
                error = parity.worst_error(exporter(module, entry, pairs[0][0], out), pairs)
        except (BadModel, Unsupported) as refusal:
            refusals[name] = refusal.what
            log.info("%s", refusal.what)
            continue
        return _notes(name, error, pairs) | {f"refused by {other}": why for other, why in refusals.items()}
    raise Unsupported(
        f"{entry.spec.id} cannot be exported to {wants}: " + "; ".join(refusals.values()),
        "make fewer dimensions dynamic, or bring the model as ONNX",
    )


def _notes(exporter: str, error: float, pairs: Pairs) -> dict[str, str]:
    shapes = sorted({parity.shapes_of(feed) for feed, _ in pairs})
    return {"exporter": exporter, "max_abs_error": f"{error:.3g}", "shapes_checked": "; ".join(shapes)}


def _eager(module: "torch.nn.Module", entry: Entry, feed: Tensors) -> Tensors:
    import torch

    with torch.inference_mode():
        return pt2.arrays(module(*pt2.tensors(feed, entry.spec.inputs)), entry.spec.outputs)


def _program(module: "torch.nn.Module", entry: Entry, feed: Tensors) -> "torch.export.ExportedProgram":
    """The traced program. Dimensions are dynamic unless the code itself fixes them, which the parity check then finds."""
    import torch

    axes = entry.dynamic_axes()
    shapes = tuple(dict.fromkeys(axes.get(spec.name, {}), torch.export.Dim.AUTO) or None for spec in entry.spec.inputs)
    return torch.export.export(module, pt2.tensors(feed, entry.spec.inputs), dynamic_shapes=shapes, strict=False)


def _program_file(module: "torch.nn.Module", entry: Entry, feed: Tensors, out: Path) -> Callable[[Tensors], Tensors]:
    pt2.save(_program(module, entry, feed), entry.spec.inputs, entry.spec.outputs, out)
    loaded = pt2.load(out)[0].module()
    return lambda feed: _eager(loaded, entry, feed)


def _dynamo(module: "torch.nn.Module", entry: Entry, feed: Tensors, out: Path) -> Callable[[Tensors], Tensors]:
    import torch

    program = torch.onnx.export(_program(module, entry, feed), dynamo=True, opset_version=OPSET, verbose=False)
    model = program.model_proto  # type: ignore[union-attr]
    _name_ports(model.graph, entry)
    _name_dimensions(model, entry)
    return _write(model, out)


def _name_ports(graph: "onnx.GraphProto", entry: Entry) -> None:
    """Call inputs and outputs by the entry's names. Torch's own renaming leaves an inner value of that name as it is: no valid graph."""
    wanted = [*(spec.name for spec in entry.spec.inputs), *entry.spec.outputs]
    names = dict(zip([value.name for value in [*graph.input, *graph.output]], wanted, strict=True))
    inner = {name for node in graph.node for name in node.output} | {tensor.name for tensor in graph.initializer}
    names |= {name: f"{name}.inner" for name in inner & set(wanted) if name not in names}
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
    for value in [*graph.input, *graph.output, *graph.value_info, *graph.initializer]:
        value.name = names.get(value.name, value.name)


def _torchscript(module: "torch.nn.Module", entry: Entry, feed: Tensors, out: Path) -> Callable[[Tensors], Tensors]:
    """The older exporter: it keeps the length of an LSTM."""
    import onnx
    import torch

    names: dict[str, Any] = {"input_names": [spec.name for spec in entry.spec.inputs], "output_names": list(entry.spec.outputs)}
    args = pt2.tensors(feed, entry.spec.inputs)
    torch.onnx.export(module, args, out, dynamo=False, opset_version=MINIMUM_OPSET, dynamic_axes=entry.dynamic_axes(), **names)
    return _write(onnx.load(out), out)


def _name_dimensions(model: "onnx.ModelProto", entry: Entry) -> None:
    """Call dynamic dimensions by the entry's names instead of the tracer's (s31)."""
    axes = entry.dynamic_axes()
    names: dict[str, str] = {}
    for value in model.graph.input:
        for axis, name in axes.get(value.name, {}).items():
            names[value.type.tensor_type.shape.dim[axis].dim_param] = name
    for value in [*model.graph.input, *model.graph.output, *model.graph.value_info]:
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in names and dim.dim_param:
                dim.dim_param = names[dim.dim_param]


# ------------------------------------------------------------------------------------------------ from ONNX


def _adopt(entry: Entry, shipped: Path, out: Path, store: Store) -> dict[str, str]:
    """A model that came as ONNX: checked, and brought to an opset that quantizers can work with."""
    import onnx

    model = _checked_onnx(shipped)
    opset = next((i.version for i in model.opset_import if i.domain in ("", "ai.onnx")), MINIMUM_OPSET)
    inputs = parity.feeds(entry, store)
    pairs = parity.references(_onnx_runner(shipped), inputs, real=len(inputs) - 2)
    if opset >= MINIMUM_OPSET:
        out.write_bytes(shipped.read_bytes())
        return _notes("as shipped", 0.0, pairs) | {"opset": str(opset)}
    try:
        upgraded = onnx.version_converter.convert_version(model, MINIMUM_OPSET)
        del upgraded.metadata_props[:]
        upgraded.metadata_props.extend(model.metadata_props)
        error = parity.worst_error(_write(upgraded, out), pairs)
    except BadModel:
        raise
    except Exception as failure:
        raise BadModel(f"{entry.spec.id} has opset {opset} and cannot be brought to {MINIMUM_OPSET}: {words_of(failure)}") from failure
    return _notes("as shipped", error, pairs) | {"opset": f"{opset} -> {MINIMUM_OPSET}"}


def _checked_onnx(path: Path) -> "onnx.ModelProto":
    """The model, valid and with its weights inside. Raises BadModel."""
    import onnx

    try:
        model = onnx.load(path, load_external_data=False)
        outside = [t.name for t in onnx.external_data_helper._get_all_tensors(model) if onnx.external_data_helper.uses_external_data(t)]
        if not outside:
            onnx.checker.check_model(model)
    except Exception as failure:
        raise BadModel(f"{path.name} is not a valid ONNX model: {words_of(failure)}") from failure
    if outside:
        raise BadModel(
            f"{path.name} keeps weights outside the file ({outside[0]})", "save it in one file: onnx.save(onnx.load(path), path)"
        )
    return model


def _write(model: "onnx.ModelProto", out: Path) -> Callable[[Tensors], Tensors]:
    """Save in one file, check it and return what runs it."""
    import onnx

    onnx.checker.check_model(model)
    onnx.save(model, out)
    return _onnx_runner(out)


def _onnx_runner(path: Path) -> Callable[[Tensors], Tensors]:
    """Runs the graph as it is written, without optimisation: export is judged, not a runtime's fusions."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]

    def run(feed: Tensors) -> dict[str, Any]:
        return dict(zip(names, session.run(names, dict(feed)), strict=True))

    return run
