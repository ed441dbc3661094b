"""An export computes what the model computes, at more than one shape, or is refused."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from model_zoo.facts import Split, Splits, Tensors
from tasks import parity
from tasks.errors import BadModel, Unsupported
from tasks.export import MINIMUM_OPSET, export
from tasks.facts import TensorSpec
from tasks.store import Store
from tests.builders import TinyEntry, tiny_entry

if TYPE_CHECKING:
    import torch


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """One store for the module."""
    return Store(tmp_path_factory.mktemp("export"))


class RowsEntry(TinyEntry):
    """An LSTM over the rows of a digit: its number of steps is declared dynamic."""

    spec = TinyEntry.spec.model_copy(
        update={"id": "digits-lstm", "inputs": (TensorSpec(name="x", dtype="float32", shape=("batch", "time", 8)),)}
    )

    def torch_module(self, store: Store) -> "torch.nn.Module":
        """Untrained: parity does not ask for accuracy."""
        import torch

        class Rows(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.memory, self.head = torch.nn.LSTM(8, 16, batch_first=True), torch.nn.Linear(16, 10)

            def forward(self, x: "torch.Tensor") -> "torch.Tensor":
                return self.head(self.memory(x)[0][:, -1])

        with torch.random.fork_rng():
            torch.manual_seed(0)
            return Rows().eval()

    def dynamic_axes(self) -> dict[str, dict[int, str]]:
        """Batch and time are free."""
        return {"x": {0: "batch", 1: "time"}, "logits": {0: "batch"}}

    def splits(self, store: Store) -> Splits:
        """Rows instead of images."""
        parts = super().splits(store)
        return Splits(*(self._rows(part) for part in (parts.calibration, parts.development, parts.evaluation)))

    def requests(self, store: Store, batch: int, count: int) -> list[Tensors]:
        """Rows instead of images."""
        return [{"x": feed["x"][:, 0]} for feed in super().requests(store, batch, count)]

    @staticmethod
    def _rows(split: Split) -> Split:
        return dataclasses.replace(split, feeds=[{"x": feed["x"][:, 0]} for feed in split.feeds])


class ShippedEntry(TinyEntry):
    """A model that came as a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def onnx(self, store: Store) -> Path:
        """The file."""
        return self.path

    def torch_module(self, store: Store) -> None:
        """None."""


def a_shipped_file(folder: Path, opset: int = 11, scale: float = 1.0) -> Path:
    """logits = relu(x) @ w in an old opset."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    weights = numpy_helper.from_array((np.random.default_rng(0).normal(size=(64, 10)) * scale).astype(np.float32), "w")
    nodes = [
        helper.make_node("Relu", ["x"], ["positive"]),
        helper.make_node("Flatten", ["positive"], ["flat"]),
        helper.make_node("MatMul", ["flat", "w"], ["logits"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 1, 8, 8])
    y = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 10])
    graph = helper.make_graph(nodes, "shipped", [x], [y], [weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=7)
    helper.set_model_props(model, {"character": "abc"})
    path = folder / "shipped.onnx"
    onnx.save(model, path)
    return path


def test_dynamic_dimensions_keep_their_names(store: Store) -> None:
    """The ONNX file is valid, in one piece, and its free dimension is called what the entry calls it."""
    import onnx

    artifact = export(tiny_entry(), "onnx", store)
    model = onnx.load(store.path(artifact.sha256))
    onnx.checker.check_model(model)
    assert [value.type.tensor_type.shape.dim[0].dim_param for value in (model.graph.input[0], model.graph.output[0])] == ["batch"] * 2
    assert artifact.notes["exporter"] == "torch.onnx dynamo"
    assert float(artifact.notes["max_abs_error"]) < 1e-4
    assert len(artifact.notes["shapes_checked"].split(";")) >= 3


def test_an_export_is_made_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second request is answered from the store and does not touch torch."""
    first = export(tiny_entry(), "onnx", store)
    monkeypatch.setattr(TinyEntry, "torch_module", lambda self, store: pytest.fail("made again"))
    assert export(tiny_entry(), "onnx", store) == first


def test_a_baked_sequence_length_is_found(store: Store) -> None:
    """A torch program that fixes the steps of an LSTM is refused with the shape; ONNX keeps them or names another exporter."""
    with pytest.raises(Unsupported, match=r"x \[\d, 5, 8\]"):
        export(RowsEntry(), "pt2", store)
    notes = export(RowsEntry(), "onnx", store).notes
    assert "x [2, 5, 8]" in notes["shapes_checked"]


def test_the_other_exporter_is_tried_and_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the first exporter fails, the second one is used and the record says why."""

    def broken(*_: object) -> None:
        raise RuntimeError("no symbolic for aten::made_up")

    monkeypatch.setattr("tasks.export._dynamo", broken)
    notes = export(RowsEntry(), "onnx", Store(tmp_path)).notes
    assert notes["exporter"] == "torch.onnx torchscript"
    assert "made_up" in notes["refused by torch.onnx dynamo"]


def test_an_output_may_be_called_like_an_inner_value(tmp_path: Path) -> None:
    """An embedding model may call its output `embedding`, which is what the tracer calls the table's look-up."""
    import torch

    class Bag(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Embedding(17, 10)

        def forward(self, x: "torch.Tensor") -> "torch.Tensor":
            return self.table((x * 16).long().flatten(1)).mean(1)

    class Bagged(TinyEntry):
        spec = TinyEntry.spec.model_copy(update={"id": "digits-bag", "outputs": ("embedding",)})

        def torch_module(self, store: Store) -> "torch.nn.Module":
            return Bag().eval()

        def dynamic_axes(self) -> dict[str, dict[int, str]]:
            return {"x": {0: "batch"}, "embedding": {0: "batch"}}

    assert export(Bagged(), "onnx", Store(tmp_path)).notes["exporter"] == "torch.onnx dynamo"


def test_an_old_opset_is_brought_up_with_its_metadata(tmp_path: Path) -> None:
    """A shipped opset 11 graph becomes one that scales per channel can be written in, and keeps its alphabet."""
    import onnx

    store = Store(tmp_path / "home")
    artifact = export(ShippedEntry(a_shipped_file(tmp_path)), "onnx", store)
    model = onnx.load(store.path(artifact.sha256))
    assert model.opset_import[0].version == MINIMUM_OPSET
    assert {p.key: p.value for p in model.metadata_props} == {"character": "abc"}
    assert artifact.notes["opset"] == f"11 -> {MINIMUM_OPSET}"
    assert artifact.parent is not None


def test_a_recent_file_is_taken_as_it_is(tmp_path: Path) -> None:
    """A graph that needs nothing keeps its bytes, so its digest is the published one."""
    store = Store(tmp_path / "home")
    path = a_shipped_file(tmp_path, opset=17)
    artifact = export(ShippedEntry(path), "onnx", store)
    assert store.path(artifact.sha256).read_bytes() == path.read_bytes()
    assert artifact.sha256 == artifact.parent


def test_a_file_without_torch_has_no_program(tmp_path: Path) -> None:
    """pt2 backends are refused for models that came as ONNX."""
    with pytest.raises(Unsupported, match="no torch program"):
        export(ShippedEntry(a_shipped_file(tmp_path)), "pt2", Store(tmp_path / "home"))


@pytest.mark.parametrize(("scale", "words"), [(float("nan"), "NaN or infinity"), (1e39, "NaN or infinity")])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_outputs_that_are_no_numbers_are_refused(scale: float, words: str, tmp_path: Path) -> None:
    """Weights with NaN or infinity never become an artifact."""
    with pytest.raises(BadModel, match=words):
        export(ShippedEntry(a_shipped_file(tmp_path, 17, scale)), "onnx", Store(tmp_path / "home"))


def test_broken_and_split_files_are_refused(tmp_path: Path) -> None:
    """A file that is no ONNX, and one that keeps its weights elsewhere, each say so."""
    import onnx

    junk = tmp_path / "junk.onnx"
    junk.write_bytes(b"\x00\x01 not a model")
    with pytest.raises(BadModel, match=r"junk\.onnx is not a valid ONNX model"):
        export(ShippedEntry(junk), "onnx", Store(tmp_path / "home"))
    split = tmp_path / "split.onnx"
    model = onnx.load(a_shipped_file(tmp_path, 17))
    onnx.save(model, split, save_as_external_data=True, location="weights.bin", size_threshold=0)
    with pytest.raises(BadModel, match="keeps weights outside the file"):
        export(ShippedEntry(split), "onnx", Store(tmp_path / "home"))


def test_a_wrong_graph_is_named_by_shape_and_size() -> None:
    """The parity check says which output is off, by how much, and at which shape."""
    feed = {"x": np.ones((2, 3), np.float32)}
    expected: Mapping[str, np.ndarray] = {"y": np.ones((2, 1), np.float32)}
    assert parity.worst_error(lambda _: {"y": expected["y"] + 1e-6}, [(feed, expected)]) == pytest.approx(1e-6, rel=0.1)
    with pytest.raises(BadModel, match=r"y is off by 0\.5 at x \[2, 3\]"):
        parity.worst_error(lambda _: {"y": expected["y"] + 0.5}, [(feed, expected)])
