"""Every backend keeps the same promises: it runs the model, says what it did, and refuses in words."""

from pathlib import Path

import numpy as np
import pytest

from tasks.backends import WHERE, backend
from tasks.build import build
from tasks.errors import BadRequest, Unsupported
from tasks.export import export
from tasks.facts import Artifact, Cell
from tasks.quantize import quantize
from tasks.store import Store
from tests.builders import a_cell, a_recipe, a_target, tiny_entry

ENTRY = tiny_entry()
SLOW = {"inductor"}  # it compiles C++
BACKENDS = [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in WHERE]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """One store for the module: each engine is built once."""
    return Store(tmp_path_factory.mktemp("backends"))


def an_engine(cell: Cell, store: Store) -> Artifact:
    """The digits engine of a cell; skips in the backend's own words where it cannot run."""
    if (why := backend(cell.backend).missing(cell)) is not None:
        pytest.skip(why)
    source = export(ENTRY, backend(cell.backend).wants, store)
    return build(quantize(ENTRY, source, cell.recipe, store), cell, store)


def eager(feed: dict[str, np.ndarray], store: Store) -> np.ndarray:
    """What the torch module itself answers."""
    import torch

    with torch.inference_mode():
        return ENTRY.torch_module(store)(torch.from_numpy(feed["x"])).numpy()


@pytest.mark.parametrize("name", BACKENDS)
def test_outputs_are_those_of_the_model(name: str, store: Store) -> None:
    """A session gives the model's answers for one feed after another, also at another batch size."""
    cell = a_cell(name)
    engine = an_engine(cell, store)
    with backend(name).open(store.path(engine.sha256), cell) as session:
        for feed in (*ENTRY.requests(store, 2, 2), *ENTRY.requests(store, 7, 1)):
            session.bind(feed)
            session.step()
            np.testing.assert_allclose(session.read()["logits"], eager(feed, store), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", BACKENDS)
def test_placement_says_what_was_got(name: str, store: Store) -> None:
    """Device, providers, precision and threads are filled, and nothing ran elsewhere."""
    cell = a_cell(name)
    engine = an_engine(cell, store)
    with backend(name).open(store.path(engine.sha256), cell) as session:
        placement = session.placement
    assert (placement.device, placement.threads, placement.precision) == (cell.target.device, 1, "fp32")
    assert placement.providers
    assert placement.share_on_device in (1.0, None)


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize(
    ("feed", "words"),
    [
        ({"y": np.zeros((1, 1, 8, 8), np.float32)}, "inputs y.*takes x float32"),
        ({"x": np.zeros((1, 1, 8, 8), np.float64)}, "x is float64"),
        ({"x": np.zeros((1, 1, 8, 9), np.float32)}, r"shape \[1, 1, 8, 9\]"),
        ({"x": np.zeros((1, 8, 8), np.float32)}, r"shape \[1, 8, 8\]"),
        ({}, "of no name"),
    ],
)
def test_wrong_inputs_are_named(name: str, feed: dict[str, np.ndarray], words: str, store: Store) -> None:
    """Names, dtypes and shapes that the engine does not take are refused before anything runs."""
    cell = a_cell(name)
    engine = an_engine(cell, store)
    with backend(name).open(store.path(engine.sha256), cell) as session, pytest.raises(BadRequest, match=words):
        session.bind(feed)


@pytest.mark.parametrize("name", [name for name in WHERE if name != "simulated"])
def test_hardware_that_is_not_here_is_said(name: str) -> None:
    """A real card is refused by name, and a simulated one is left to the simulation."""
    card = a_target(vendor="nvidia", arch="sm_89", device="cuda:0")
    assert "sm_89" in str(backend(name).missing(a_cell(name, target=card)))
    assert "use the backend 'simulated'" in str(backend(name).missing(a_cell(name, target=a_target(simulated=True))))


def test_a_target_of_another_processor_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers of this machine never count for another architecture, or for instructions that it lacks."""
    here = {"cpu": "AMD EPYC", "flags": "avx2 avx512_vnni", "arch": "x86_64"}
    monkeypatch.setattr("tasks.backends.base.fingerprint", lambda: here)
    why = {
        arch: backend("ort").missing(a_cell("ort", target=a_target(arch=arch)))
        for arch in ("x86_64", "amd64", "x86_64-avx512vnni", "aarch64", "x86_64-avx512vnni-amx_int8")
    }
    assert [arch for arch, reason in why.items() if reason is None] == ["x86_64", "amd64", "x86_64-avx512vnni"]
    assert "is aarch64, and this machine is x86_64" in str(why["aarch64"])
    assert "does not report amx_int8" in str(why["x86_64-avx512vnni-amx_int8"])


def test_recipes_are_kept_to_their_backends() -> None:
    """A recipe of another backend, or one that a torch program cannot take, is refused with the reason."""
    assert backend("openvino").missing(a_cell("openvino", "int8-dynamic")) == "recipe int8-dynamic is for ort, not for openvino"
    anywhere = a_recipe("int8-static", backends=())
    assert "takes the torch program" in str(backend("torch-eager").missing(a_cell("torch-eager", anywhere)))


def test_absent_libraries_come_with_their_install_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a library is not installed, missing() says how to get it."""
    monkeypatch.setattr("tasks.backends.base.installed", lambda module: module != "openvino")
    why = backend("openvino").missing(a_cell("openvino"))
    assert why == "openvino is not installed: pip install -c deployments/constraints.txt -e '.[intel]'"


def test_unknown_backends_are_named() -> None:
    """A backend that does not exist is answered with those that do."""
    with pytest.raises(BadRequest, match="known backends: torch-eager, ort, openvino"):
        backend("tensorrt")


@pytest.mark.parametrize("name", ["ort", "openvino", "torch-eager"])
def test_files_that_are_no_model_end_in_words(name: str, tmp_path: Path) -> None:
    """A broken file is an error of ours that quotes the runtime, not a traceback of its own."""
    if (why := backend(name).missing(a_cell(name))) is not None:
        pytest.skip(why)
    junk = tmp_path / "junk"
    junk.write_bytes(b"not a model" * 100)
    with pytest.raises(Unsupported, match="failed while"):
        backend(name).build(junk, a_cell(name), tmp_path / "out")


def test_two_threads_are_two_threads(store: Store) -> None:
    """The target's threads reach the runtime."""
    for name in ("ort", "openvino"):
        cell = a_cell(name, target=a_target(threads=2))
        engine = an_engine(cell, store)
        with backend(name).open(store.path(engine.sha256), cell) as session:
            assert session.placement.threads == 2
