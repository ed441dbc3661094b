"""A simulated device keeps its table's times and fails as it is told to."""

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tasks.backends import backend
from tasks.build import build
from tasks.export import export
from tasks.facts import Artifact, Cell
from tasks.quantize import quantize
from tasks.store import Store
from tests.builders import a_cell, a_recipe, a_simulation, a_target, tiny_entry

ENTRY = tiny_entry()
SIMULATED = backend("simulated")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """One store for the module."""
    return Store(tmp_path_factory.mktemp("simulated"))


def a_simulated_cell(recipe: str = "fp32", **simulation: object) -> Cell:
    """A cell on a card with these habits."""
    return a_cell("simulated", recipe, a_target(simulated=True, simulation=a_simulation(**simulation)))


def an_engine(cell: Cell, store: Store) -> Artifact:
    """The digits engine of a simulated cell."""
    return build(quantize(ENTRY, export(ENTRY, "onnx", store), cell.recipe, store), cell, store)


def steps_us(cell: Cell, store: Store, count: int = 200) -> np.ndarray:
    """Measured step times in microseconds."""
    times = np.empty(count)
    with SIMULATED.open(store.path(an_engine(cell, store).sha256), cell) as session:
        session.bind(ENTRY.requests(store, 1, 1)[0])
        for index in range(count):
            began = time.perf_counter_ns()
            session.step()
            times[index] = (time.perf_counter_ns() - began) / 1000
    return times


def test_steps_take_the_time_of_the_table(store: Store) -> None:
    """The fast half of the steps lies within a few microseconds of the table, whatever else this machine does."""
    assert np.percentile(steps_us(a_simulated_cell(noise=0), store), 10) == pytest.approx(420, abs=8)


def test_precision_decides_the_time(store: Store) -> None:
    """INT8 takes INT8's time."""
    assert np.percentile(steps_us(a_simulated_cell("int8-static-channel", noise=0), store), 10) == pytest.approx(150, abs=8)


def test_tails_and_throttling_show(store: Store) -> None:
    """A slow share makes a tail; throttling halves the speed."""
    assert np.percentile(steps_us(a_simulated_cell(noise=0, slow_share=0.2), store), 95) > 4000
    assert np.percentile(steps_us(a_simulated_cell(noise=0, throttle_after_s=0.0), store, 50)[1:], 10) == pytest.approx(840, abs=16)


def test_the_same_inputs_give_the_same_error(store: Store) -> None:
    """The output error is there, has the size it is given, and repeats."""
    cell = a_simulated_cell(output_error={"fp32": 0.05})
    exact_cell = a_simulated_cell()
    feed = ENTRY.requests(store, 64, 1)[0]
    answers = []
    for one in (cell, cell, exact_cell):
        with SIMULATED.open(store.path(an_engine(one, store).sha256), one) as session:
            session.bind(feed)
            session.step()
            answers.append(session.read()["logits"])
    np.testing.assert_array_equal(answers[0], answers[1])
    error = np.sqrt(np.mean((answers[0] - answers[2]) ** 2) / np.mean(answers[2] ** 2))
    assert error == pytest.approx(0.05, rel=0.2)


def test_operators_that_fall_back_are_counted(store: Store) -> None:
    """A card that gives convolutions back to the host says so in its placement."""
    cell = a_simulated_cell(fallback=("Conv",))
    with SIMULATED.open(store.path(an_engine(cell, store).sha256), cell) as session:
        placement = session.placement
    assert placement.elsewhere == ("Conv",)
    assert placement.nodes_elsewhere == 2
    assert placement.share_on_device is not None
    assert 0 < placement.share_on_device < 1


def test_nan_outputs_are_nan(store: Store) -> None:
    """The fault reaches the outputs; it is for others to refuse them."""
    cell = a_simulated_cell(fault="nan")
    with SIMULATED.open(store.path(an_engine(cell, store).sha256), cell) as session:
        session.bind(ENTRY.requests(store, 1, 1)[0])
        session.step()
        assert np.isnan(session.read()["logits"]).all()


@pytest.mark.parametrize(("fault", "ends"), [("crash", -11), ("hang", None)])
def test_crashes_and_hangs_are_real(fault: str, ends: int | None, store: Store, tmp_path: Path) -> None:
    """A crash kills the process by a signal and a hang never returns: no exception to catch in either case."""
    cell = a_simulated_cell(fault=fault)
    (tmp_path / "cell.json").write_text(cell.model_dump_json())
    engine = store.path(an_engine(cell, store).sha256)
    code = (
        "import sys, pathlib, numpy; from tasks.facts import Cell; from tasks.backends import backend\n"
        "cell = Cell.model_validate_json(pathlib.Path(sys.argv[1]).read_text())\n"
        "with backend('simulated').open(pathlib.Path(sys.argv[2]), cell) as session:\n"
        "    session.bind({'x': numpy.zeros((1, 1, 8, 8), numpy.float32)}); print('ready', flush=True); session.step(); print('done')\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "cell.json"), str(engine)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parent.parent)},
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        if ends is None:
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.5)
        else:
            assert process.wait(20) == ends
    finally:
        process.kill()
        process.wait()


def test_unknown_precisions_and_real_targets_are_refused() -> None:
    """The table must know the precision, and the simulation never touches a real target."""
    assert "no step time for int4" in str(SIMULATED.missing(a_cell("simulated", a_recipe("fp32", precision="int4"))))
    assert "real device" in str(SIMULATED.missing(a_cell("simulated", target=a_target())))
