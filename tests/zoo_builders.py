"""Small models and data that the tests of users' models are made of."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import model_zoo
from model_zoo.facts import Entry

ROWS = 200


def writer(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Entry]:
    """A function that writes $CROSSGRADE_MODELS and returns the entry `mine`."""

    def write(text: str) -> Entry:
        (folder / "models.toml").write_text(text)
        monkeypatch.setenv("CROSSGRADE_MODELS", str(folder / "models.toml"))
        return model_zoo.entry("mine")

    return write


def save_linear(path: Path, features: int = 4, classes: int = 3, batch: int | str = "batch", opset: int = 17) -> np.ndarray:
    """An ONNX file with one matrix product; returns the matrix."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    weight = np.random.RandomState(0).randn(features, classes).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["logits"])],
        "linear",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, features])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [batch, classes])],
        [numpy_helper.from_array(weight, "w")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), path)
    return weight


def save_data(path: Path, weight: np.ndarray, rows: int = ROWS) -> tuple[np.ndarray, np.ndarray]:
    """Random rows with the labels that the matrix gives them."""
    x = np.random.RandomState(1).randn(rows, len(weight)).astype(np.float32)
    labels = (x @ weight).argmax(1)
    np.savez(path, x=x, labels=labels)
    return x, labels
