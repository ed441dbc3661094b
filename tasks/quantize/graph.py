"""Reading ONNX graphs before and after a quantizer."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tasks.backends.base import words_of
from tasks.errors import Unsupported

MULTIPLY = ("Attention", "Conv", "ConvTranspose", "Convolution", "Embedding", "GRU", "Gather", "Gemm", "LSTM", "LSTMSequence", "MatMul")


def prepare(source: Path, out: Path) -> Path:
    """Shapes inferred and constants folded, as ONNX Runtime's quantizers want it. Writes only to `out`."""
    from onnxruntime.quantization.shape_inference import quant_pre_process

    try:
        quant_pre_process(str(source), str(out), auto_merge=True)
    except Exception as error:
        if "symbolic" not in words_of(error, 10_000).lower() and not isinstance(error, AssertionError | AttributeError | TypeError):
            raise
        quant_pre_process(str(source), str(out), skip_symbolic_shape=True)
    return out


def require(path: Path, operators: Sequence[str], recipe: str) -> None:
    """Raises Unsupported when a graph has none of the operators that a recipe is about."""
    if operators and not set(operators) & set(kinds(path)):
        raise Unsupported(f"recipe {recipe} quantizes {', '.join(operators)}, and the model has none of them", "choose another recipe")


def kinds(path: Path) -> Counter[str]:
    """Operators of a graph with counts."""
    import onnx

    return Counter(node.op_type for node in onnx.load(path).graph.node)


def between_scales(path: Path, operators: Sequence[str]) -> Counter[str]:
    """Operators that read dequantized values, of those asked for: what a runtime may compute in INT8."""
    import onnx

    graph = onnx.load(path).graph
    dequantized = {name for node in graph.node if node.op_type == "DequantizeLinear" for name in node.output}
    reading = [node.op_type for node in graph.node if node.op_type != "QuantizeLinear" and dequantized & set(node.input)]
    return Counter(kind for kind in reading if not operators or kind in operators)


def counted(found: Counter[str], recipe: str) -> str:
    """'Conv 6, Gemm 1, 12 others': what multiplies by name. Raises Unsupported when nothing was quantized."""
    if not found:
        raise Unsupported(f"recipe {recipe} found nothing to quantize in this model", "choose another recipe")
    named = [f"{kind} {count}" for kind, count in sorted(found.items()) if kind in MULTIPLY]
    others = sum(count for kind, count in found.items() if kind not in MULTIPLY)
    return ", ".join(named + ([f"{others} others"] if others else []))
