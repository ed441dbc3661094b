"""Dynamic INT8 with ONNX Runtime: weights stored in INT8, activations quantized at every call."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from model_zoo.facts import Tensors
from tasks.backends.base import Built
from tasks.facts import Recipe
from tasks.quantize import graph

LOWERED = {
    "ConvInteger": "Conv",
    "MatMulInteger": "MatMul",
    "DynamicQuantizeLSTM": "LSTM",
    "QAttention": "Attention",
    "QEmbedLayerNormalization": "Embedding",
}


def quantize(source: Path, recipe: Recipe, feeds: Sequence[Tensors], out: Path) -> Built:  # noqa: ARG001  nothing to calibrate
    """Write the quantized graph to `out`; what was quantized is in the notes."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    graph.require(source, recipe.operators, recipe.name)
    quantize_dynamic(
        str(graph.prepare(source, out.with_suffix(".prepared"))),
        str(out),
        op_types_to_quantize=list(recipe.operators) or None,
        per_channel=recipe.per_channel,
        weight_type=QuantType.QInt8,
    )
    lowered = Counter({LOWERED[kind]: count for kind, count in graph.kinds(out).items() if kind in LOWERED})
    return Built(
        format="onnx",
        notes={"quantized": graph.counted(lowered + graph.between_scales(out, recipe.operators), recipe.name), "form": "dynamic S8"},
    )
