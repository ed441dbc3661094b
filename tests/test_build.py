"""Engines are built once per processor, and a graph that cannot run is refused when it is built."""

from pathlib import Path

import pytest

from tasks.backends import backend
from tasks.build import build
from tasks.errors import Unsupported
from tasks.export import export
from tasks.facts import Artifact
from tasks.store import Store
from tests.builders import a_cell, a_target, tiny_entry

ENTRY = tiny_entry()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """One store for the module."""
    return Store(tmp_path_factory.mktemp("build"))


def test_an_engine_knows_its_parent_and_tools(store: Store) -> None:
    """Lineage, versions, seconds and what it executes are in the artifact."""
    source = export(ENTRY, "onnx", store)
    engine = build(source, a_cell("ort"), store)
    assert (engine.kind, engine.format, engine.parent) == ("engine", "onnx", source.sha256)
    assert set(engine.tools) == {"onnxruntime"}
    assert engine.seconds > 0
    assert engine.notes["executes"] == "fp32"
    assert engine.size_bytes == store.path(engine.sha256).stat().st_size


def test_an_engine_is_built_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same cell on the same processor is answered from the store; another processor or thread count is not."""
    source, cell = export(ENTRY, "onnx", store), a_cell("ort")
    first = build(source, cell, store)
    ort = backend("ort")
    calls: list[Path] = []
    real = ort.build
    monkeypatch.setattr(ort, "build", lambda *args: calls.append(args[0]) or real(*args))
    assert build(source, cell, store) == first
    assert calls == []
    build(source, a_cell("ort", target=a_target(threads=2)), store)
    monkeypatch.setattr("tasks.build.fingerprint", lambda: {"cpu": "another one"})
    build(source, cell, store)
    assert len(calls) == 2


def test_a_graph_that_cannot_be_loaded_is_refused(store: Store, tmp_path: Path) -> None:
    """A quantizer may return without error and leave a graph that no session takes: the build finds it, in the runtime's words."""
    import onnx

    model = onnx.load(store.path(export(ENTRY, "onnx", store).sha256))
    next(node for node in model.graph.node if node.op_type == "Gemm").op_type = "GemmOfAnotherWorld"
    onnx.save(model, tmp_path / "broken.onnx")
    sha256 = store.put_file(tmp_path / "broken.onnx")
    source = Artifact(kind="quantized", format="onnx", sha256=sha256, size_bytes=1)
    for name in ("ort", "openvino"):
        if backend(name).missing(a_cell(name)) is None:
            with pytest.raises(Unsupported, match="GemmOfAnotherWorld"):
                build(source, a_cell(name), store)


def test_a_cell_that_cannot_run_here_is_not_built(store: Store) -> None:
    """The reason of missing() is the reason of the refusal."""
    cell = a_cell("ort", target=a_target(vendor="nvidia", arch="sm_89", device="cuda:0"))
    with pytest.raises(Unsupported, match=r"ort/fp32@cpu-1core cannot be built here.*needs its hardware"):
        build(export(ENTRY, "onnx", store), cell, store)
