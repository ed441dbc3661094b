"""Static INT8 with NNCF: OpenVINO's own post-training quantization, on the OpenVINO graph of an ONNX file."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from model_zoo.facts import Tensors
from tasks.backends import openvino_rt
from tasks.backends.base import Built
from tasks.errors import Unsupported
from tasks.facts import Recipe
from tasks.quantize import graph

if TYPE_CHECKING:
    import openvino


def quantize(source: Path, recipe: Recipe, feeds: Sequence[Tensors], out: Path) -> Built:
    """Write the quantized IR, packed, to `out`; what was quantized is in the notes."""
    import nncf
    import openvino as ov

    if recipe.operators or recipe.calibration != "minmax":
        raise Unsupported(
            f"recipe {recipe.name} names operators or {recipe.calibration} calibration", "NNCF chooses operators itself, by minmax"
        )
    model = nncf.quantize(
        ov.Core().read_model(source),
        nncf.Dataset([dict(feed) for feed in feeds]),
        subset_size=len(feeds),
        model_type=None if graph.kinds(source)["Conv"] else nncf.ModelType.TRANSFORMER,
    )
    openvino_rt.pack(model, out)
    return Built(format=openvino_rt.FORMAT, notes={"quantized": graph.counted(_quantized(model), recipe.name), "form": "FakeQuantize"})


def _quantized(model: "openvino.Model") -> Counter[str]:
    """Operators with weights or activations that come out of a FakeQuantize."""
    found: Counter[str] = Counter()
    for op in model.get_ops():
        sources = (value.get_source_output().get_node().get_type_name() for value in op.inputs())
        if op.get_type_name() != "FakeQuantize" and "FakeQuantize" in sources:
            found[op.get_type_name()] += 1
    return found
