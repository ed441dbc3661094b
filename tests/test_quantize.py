"""Recipes lower precision, keep accuracy where they should, and refuse where they cannot."""

import dataclasses
import logging
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tasks.backends import backend
from tasks.build import build
from tasks.catalog import recipes
from tasks.errors import Unsupported
from tasks.export import export
from tasks.facts import Artifact
from tasks.quantize import digest_of_feeds, quantize
from tasks.store import Store
from tests.builders import a_cell, a_recipe, tiny_entry
from tests.test_export import RowsEntry

ENTRY = tiny_entry()
CELLS = [
    (runtime, name) for name, recipe in recipes().items() for runtime in recipe.backends or ("ort", "openvino") if runtime != "simulated"
]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """One store for the module."""
    return Store(tmp_path_factory.mktemp("quantize"))


@pytest.fixture(autouse=True)
def logging_untouched() -> Iterator[None]:
    """Toolkits must not change how everyone else logs."""
    root = logging.getLogger()
    before = (root.level, list(root.handlers))
    yield
    assert (root.level, list(root.handlers)) == before


@pytest.mark.parametrize(("runtime", "name"), CELLS)
def test_every_recipe_keeps_the_digits(runtime: str, name: str, store: Store) -> None:
    """Each recipe of the ladder gives an engine that is still right on at least 95% of 300 digits."""
    cell = a_cell(runtime, name)
    if (why := backend(runtime).missing(cell)) is not None:
        pytest.skip(why)
    source = export(ENTRY, "onnx", store)
    quantized = quantize(ENTRY, source, cell.recipe, store)
    engine = build(quantized, cell, store)
    data = ENTRY.splits(store).evaluation
    outputs = []
    with backend(runtime).open(store.path(engine.sha256), cell) as session:
        assert session.placement.precision.startswith(cell.recipe.precision)
        for feed in data.feeds:
            session.bind(feed)
            session.step()
            outputs.append(session.read())
    assert ENTRY.score(outputs, data.labels)[:, 0].mean() >= 0.95
    if cell.recipe.method != "none":
        assert (quantized.kind, quantized.parent) == ("quantized", source.sha256)
        assert quantized.notes["quantized"]
        assert quantized.size_bytes < source.size_bytes


def test_fp32_is_the_source_itself(store: Store) -> None:
    """A recipe that changes nothing makes nothing."""
    source = export(ENTRY, "onnx", store)
    assert quantize(ENTRY, source, a_recipe("fp32"), store) is source


def test_calibration_is_part_of_the_result(store: Store) -> None:
    """How many items were used, and which, is in the notes and in the key; another note in the recipe is not."""
    source = export(ENTRY, "onnx", store)
    many = quantize(ENTRY, source, a_recipe("int8-static"), store)
    few = quantize(ENTRY, source, a_recipe("int8-static", calibration_items=4), store)
    assert (many.notes["calibration_items"], few.notes["calibration_items"]) == ("32", "4")
    assert many.notes["calibration"] != few.notes["calibration"]
    assert quantize(ENTRY, source, a_recipe("int8-static", note="other words"), store) == many


def test_the_source_folder_stays_clean(store: Store) -> None:
    """Quantizers write scratch files; none of them lands beside the source, or stays."""
    source = export(ENTRY, "onnx", store)
    folder = store.path(source.sha256).parent
    before = sorted(folder.iterdir())
    quantize(ENTRY, source, a_recipe("int8-static", calibration_items=3), store)
    assert [path for path in sorted(folder.iterdir()) if path.name.startswith(source.sha256)] == [store.path(source.sha256)]
    assert set(before) <= set(folder.iterdir())
    assert not list((store.root / "scratch").iterdir())


@pytest.mark.parametrize("calibration", ["minmax", "entropy", "percentile"])
def test_items_of_different_lengths_calibrate(calibration: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calibration takes items one at a time, so sequences need not have one length."""
    entry, store = RowsEntry(), Store(tmp_path)
    parts = entry.splits(store)
    feeds = [{"x": feed["x"][:, : 3 + index % 5]} for index, feed in enumerate(parts.calibration.feeds)]
    ragged = dataclasses.replace(parts, calibration=dataclasses.replace(parts.calibration, feeds=feeds))
    monkeypatch.setattr(RowsEntry, "splits", lambda self, store: ragged)
    recipe = a_recipe("int8-static", calibration=calibration, calibration_items=8)
    assert "Gemm" in quantize(entry, export(entry, "onnx", store), recipe, store).notes["quantized"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"operators": ["ConvTranspose"]}, "the model has none of them"),
        ({"method": "weight_only"}, "int8 by weight_only with onnxruntime"),
        ({"precision": "int4"}, "int4 by static"),
        ({"calibration": "none"}, "static needs it"),
        ({"method": "dynamic"}, "dynamic has none"),
        ({"toolkit": "nncf", "calibration": "entropy"}, "by minmax"),
    ],
)
def test_recipes_that_make_no_sense_are_refused(changes: dict[str, object], words: str, store: Store) -> None:
    """Each names what was asked for and what can be made."""
    if changes.get("toolkit") == "nncf":
        pytest.importorskip("nncf")
    with pytest.raises(Unsupported, match=words):
        quantize(ENTRY, export(ENTRY, "onnx", store), a_recipe("int8-static", **changes), store)


def test_torch_programs_are_not_quantized(store: Store) -> None:
    """ONNX recipes refuse a torch program."""
    program = Artifact(kind="exported", format="pt2", sha256="0" * 64, size_bytes=1)
    with pytest.raises(Unsupported, match="the source is pt2"):
        quantize(ENTRY, program, a_recipe("int8-static"), store)


def test_the_toolkits_words_are_kept(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a quantizer raises comes out as Unsupported with its message."""

    def broken(*_: object) -> None:
        raise ValueError("cannot quantize initializer w of type BFLOAT16")

    monkeypatch.setattr("tasks.quantize.ort_static.quantize", broken)
    with pytest.raises(Unsupported, match="onnxruntime failed while quantizing digits-cnn with int8-static: cannot quantize initializer"):
        quantize(ENTRY, export(ENTRY, "onnx", store), a_recipe("int8-static", calibration_items=7), store)


def test_digests_of_feeds_see_values_names_and_shapes() -> None:
    """Two calibration sets have one digest only when they are the same."""
    base = [{"x": np.zeros((2, 3), np.float32)}]
    others = [[{"y": np.zeros((2, 3), np.float32)}], [{"x": np.zeros((3, 2), np.float32)}], [{"x": np.ones((2, 3), np.float32)}], []]
    digests = {digest_of_feeds(feeds) for feeds in (base, *others)}
    assert len(digests) == 5
    assert digest_of_feeds([{"x": np.zeros((2, 3), np.float32)}]) in digests


def test_the_most_sensitive_node_stays_fp32(store: Store) -> None:
    """The node whose quantization alone changes the outputs most is kept, and the record names it; the others are INT8."""
    source = export(ENTRY, "onnx", store)
    every = quantize(ENTRY, source, a_recipe("int8-static-conv"), store)
    mixed = quantize(ENTRY, source, a_recipe("int8-static-mixed"), store)
    assert (every.notes["quantized"], mixed.notes["quantized"]) == ("Conv 2", "Conv 1")
    assert mixed.notes["kept_fp32"]
    with pytest.raises(Unsupported, match="keeps 2 of 2 nodes"):
        quantize(ENTRY, source, a_recipe("int8-static-mixed", keep_sensitive=2), store)


def test_keeping_no_node_leaves_digests_as_they_were() -> None:
    """A recipe that keeps nothing has the digest it had before nodes could be kept."""
    assert "keep_sensitive" not in a_recipe("int8-static").model_dump(mode="json")
    assert a_recipe("int8-static").digest != a_recipe("int8-static", keep_sensitive=1).digest
