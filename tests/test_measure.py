"""Measuring real engines in real processes: what comes back, and what one bad cell does to the others."""

import logging
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from tasks import measure as measuring
from tasks.backends.base import Tensors
from tasks.errors import BadArtifact, BadModel
from tasks.facts import Artifact, Cell, Repeat, Unmeasured, Workload
from tasks.measure import Job, Measured, harness, load_feeds, measure, store_feeds
from tasks.measure.worker import Once
from tasks.store import Store
from tests.builders import a_cell, a_simulation, a_target

QUICK = Workload(warmup_ms=5, min_samples=60, min_duration_s=0.02, max_duration_s=5, repeats=2)


@pytest.fixture(autouse=True)
def _own_leases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CROSSGRADE_LEASES", str(tmp_path / "leases"))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An empty store."""
    return Store(tmp_path / "home")


def an_engine(store: Store, scale: float = 1.0) -> Artifact:
    """A matrix product and a ReLU as an ONNX engine."""
    weight = helper.make_tensor("w", TensorProto.FLOAT, [64, 64], (np.eye(64, dtype=np.float32) * scale).ravel())
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Relu", ["m"], ["y"])]
    value = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 64]) for name in "xy"}
    graph = helper.make_graph(nodes, "g", [value["x"]], [value["y"]], [weight])
    data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10).SerializeToString()
    return Artifact(kind="engine", format="onnx", sha256=store.put(data), size_bytes=len(data))


def some_feeds(count: int = 4) -> list[Tensors]:
    """Different inputs for the engine."""
    return [{"x": np.random.default_rng(index).standard_normal((1, 64)).astype(np.float32)} for index in range(count)]


def a_job(store: Store, cell: Cell | None = None, workload: Workload = QUICK, engine: Artifact | None = None) -> Job:
    """A job on the engine above."""
    return Job(engine=engine or an_engine(store), cell=cell or a_cell(), workload=workload, feeds=store_feeds(some_feeds(), store))


def test_feeds_come_back_as_stored(store: Store) -> None:
    """Feeds survive the store in order, by name, with type and shape, also with names that look like paths."""
    feeds = [{"a/b": np.arange(6).reshape(2, 3) + index, "ids": np.array([index], np.int64)} for index in range(12)]
    for before, after in zip(feeds, load_feeds(store_feeds(feeds, store), store), strict=True):
        assert sorted(before) == sorted(after)
        for name in before:
            np.testing.assert_array_equal(before[name], after[name])
            assert before[name].dtype == after[name].dtype


def test_same_feeds_are_one_object(store: Store) -> None:
    """Storing the same feeds twice gives one digest."""
    assert store_feeds(some_feeds(), store) == store_feeds(some_feeds(), store)


def test_no_feeds(store: Store) -> None:
    """Nothing to feed is refused at once."""
    with pytest.raises(BadModel, match="no feeds"):
        store_feeds([], store)


NPY = b"\x93NUMPY\x01\x00v\x00{'descr': '<f8', 'fortran_order': False, 'shape': (1,), }".ljust(127) + b"\n" + bytes(8)


@pytest.mark.parametrize("data", [b"not an archive", b"", b"PK\x03\x04 and no more", NPY])
def test_feeds_that_are_something_else(data: bytes, store: Store) -> None:
    """An object that holds no feeds is a BadArtifact."""
    with pytest.raises(BadArtifact, match="does not hold feeds"):
        load_feeds(store.put(data), store)


def test_measured_cell(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    """Each repeat is a fresh process with its own raw samples; placement, host and harness are facts of the timing."""
    with caplog.at_level(logging.INFO, "crossgrade"):
        [measured] = measure([a_job(store)], store)
    assert isinstance(measured, Measured)
    repeats = measured.timing.repeats
    assert len(repeats) == 2
    assert len({repeat.started for repeat in repeats}) == 2
    for repeat in repeats:
        samples = store.array(repeat.samples)
        assert (samples.dtype, samples.size) == (np.int64, repeat.count)
        assert repeat.count >= 30
        assert repeat.wall_ns >= samples.sum()
        assert repeat.peak_rss_bytes > 10_000_000
        assert repeat.load_s > 0
    assert (measured.placement.device, measured.placement.threads) == ("cpu", 1)
    assert measured.host.packages["onnxruntime"] != "absent"
    assert measured.timing.harness == harness()
    assert "repeat 2 of 2" in caplog.text


def test_one_bad_cell_leaves_the_others(store: Store) -> None:
    """A crash, a corrupt engine and a missing engine become Unmeasured with their reasons, in place; the good cell is measured."""
    crash = a_cell("simulated", target=a_target(simulated=True, simulation=a_simulation(fault="crash")))
    corrupt = an_engine(store).model_copy(update={"sha256": store.put(b"this is no graph")})
    missing = an_engine(store).model_copy(update={"sha256": "0" * 64})
    jobs = [a_job(store, crash), a_job(store), a_job(store, engine=corrupt), a_job(store, engine=missing)]
    crashed, good, broken, absent = measure(jobs, store)
    assert isinstance(good, Measured)
    assert all(isinstance(one, Unmeasured) and one.stage == "measure" for one in (crashed, broken, absent))
    assert "repeat 1 of 2: measuring simulated/fp32@sim-l4 was killed by signal" in crashed.reason
    assert "loading the graph" in broken.reason
    assert "is not in" in absent.reason


def test_hang_ends_one_cell(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A runtime that never returns is stopped at its time limit and reported."""
    monkeypatch.setattr(measuring, "LOAD_S", 2.0)
    hang = a_cell("simulated", target=a_target(simulated=True, simulation=a_simulation(fault="hang")))
    [outcome] = measure([a_job(store, hang, QUICK.model_copy(update={"max_duration_s": 0.1}))], store)
    assert isinstance(outcome, Unmeasured)
    assert "stopped after 2.2 s" in outcome.reason


def test_simulated_time_is_measured(store: Store) -> None:
    """A device that takes 420 us is measured as taking about that: never less, and named as the accelerator."""
    [outcome] = measure([a_job(store, a_cell("simulated"))], store)
    assert isinstance(outcome, Measured)
    median = np.median(np.concatenate([store.array(repeat.samples) for repeat in outcome.timing.repeats]))
    assert median >= 0.95 * 420_000
    assert outcome.host.accelerator == "simulated:l4"


def test_repeats_alternate() -> None:
    """Cells are timed forwards and backwards in turn; one with fewer repeats drops out."""
    assert measuring._round_robin([3, 3, 1]) == [(0, 0), (0, 1), (0, 2), (1, 1), (1, 0), (2, 0), (2, 1)]
    assert measuring._round_robin([]) == []


def test_other_placement_is_a_warning(store: Store) -> None:
    """A repeat that ran elsewhere than the first one says so."""
    [measured] = measure([a_job(store, workload=QUICK.model_copy(update={"repeats": 1}))], store)
    assert isinstance(measured, Measured)
    first = Once(repeat=measured.timing.repeats[0], placement=measured.placement, host=measured.host)
    moved = first.model_copy(update={"placement": measured.placement.model_copy(update={"nodes_elsewhere": 1})})
    repeat: Repeat = measuring._with_warning(moved, first)
    assert repeat.warnings[-1].startswith("ran on cpu in ")
    assert "1 threads and 1 nodes elsewhere, the first repeat on cpu" in repeat.warnings[-1]
    assert measuring._with_warning(first, first) == first.repeat
