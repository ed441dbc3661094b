"""Static INT8 with NNCF: OpenVINO's own post-training quantization, on the OpenVINO graph of an ONNX file."""

import os
from collections import Counter
from collections.abc import Sequence
from functools import partialmethod
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from model_zoo.facts import Tensors
from tasks.backends import openvino_rt
from tasks.backends.base import Built
from tasks.errors import Unsupported
from tasks.facts import Recipe
from tasks.quantize import graph

if TYPE_CHECKING:
    import openvino

SHAPES = ("Reshape", "Transpose", "Squeeze", "Unsqueeze")


def quantize(source: Path, recipe: Recipe, feeds: Sequence[Tensors], out: Path) -> Built:
    """Write the quantized IR, packed, to `out`; what was quantized is in the notes."""
    nncf = _nncf()
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


def _nncf() -> ModuleType:
    """NNCF without its habits: it reports use to Google Analytics unless it believes to be in its own CI, and draws progress bars."""
    os.environ.setdefault("NNCF_CI", "1")
    import nncf
    from nncf.common.logging.track_progress import track

    if not isinstance(track.__dict__["__init__"], partialmethod):
        track.__init__ = partialmethod(track.__init__, disable=True)
    return nncf


def _quantized(model: "openvino.Model") -> Counter[str]:
    """Operators that read a FakeQuantize, straight or through a change of shape."""
    found: Counter[str] = Counter()
    for op in model.get_ops():
        kind = op.get_type_name()
        if kind not in (*SHAPES, "FakeQuantize") and any(
            _source(value.get_source_output().get_node()) == "FakeQuantize" for value in op.inputs()
        ):
            found[kind] += 1
    return found


def _source(node: "openvino.Node") -> str:
    while node.get_type_name() in SHAPES:
        node = node.input_value(0).get_node()
    return node.get_type_name()
