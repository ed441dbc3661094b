"""Which nodes suffer most from INT8: each is quantized alone, and the change of the model's outputs is measured.

Only calibration data is looked at, and no labels: what is chosen here can still be judged on the other splits.
"""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from model_zoo.facts import Tensors
from tasks.errors import Unsupported
from tasks.facts import Recipe

if TYPE_CHECKING:
    import onnxruntime

COMPUTE = ("Conv", "MatMul", "Gemm")
MOST = 48  # nodes; each costs a quantization and a few inferences
FEEDS = 8
log = logging.getLogger("crossgrade")


def worst(prepared: Path, write: Callable[..., None], recipe: Recipe, feeds: Sequence[Tensors]) -> list[str]:
    """Names of the `recipe.keep_sensitive` nodes whose quantization alone changes the outputs most, worst first.

    Args:
        prepared: the FP32 graph.
        write: quantizes it into a file; takes `nodes_to_quantize`.
        recipe: which operators, and how many to keep.
        feeds: calibration feeds.
    """
    import onnx

    wanted = recipe.operators or COMPUTE
    names = [node.name for node in onnx.load(prepared).graph.node if node.op_type in wanted and node.name]
    if not recipe.keep_sensitive < len(names) <= MOST:
        raise Unsupported(
            f"recipe {recipe.name} keeps {recipe.keep_sensitive} of {len(names)} nodes",
            f"it is for models with up to {MOST} of {', '.join(wanted)}",
        )
    few = feeds[:FEEDS]
    expected = _outputs(prepared, few)
    alone = prepared.with_suffix(".alone")
    errors = {}
    for name in names:
        write(alone, nodes_to_quantize=[name])
        errors[name] = _relative_error(_outputs(alone, few), expected)
    log.info("INT8 error of each node alone: %s", ", ".join(f"{name} {error:.2g}" for name, error in errors.items()))
    return sorted(errors, key=errors.__getitem__, reverse=True)[: recipe.keep_sensitive]


def _outputs(path: Path, feeds: Sequence[Tensors]) -> list[list[np.ndarray]]:
    session = _session(path)
    return [session.run(None, dict(feed)) for feed in feeds]


def _session(path: Path) -> "onnxruntime.InferenceSession":
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def _relative_error(got: Sequence[Sequence[np.ndarray]], expected: Sequence[Sequence[np.ndarray]]) -> float:
    """Energy of the difference over energy of the outputs, both summed over all feeds."""
    pairs = [(a, b) for one, other in zip(got, expected, strict=True) for a, b in zip(one, other, strict=True)]
    difference = sum(float(np.square(a - b, dtype=np.float64).sum()) for a, b in pairs)
    energy = sum(float(np.square(b, dtype=np.float64).sum()) for _, b in pairs)
    return difference / energy if energy else 0.0
