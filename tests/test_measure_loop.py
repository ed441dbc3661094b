"""The stopwatch: what it counts, when it stops, and what it says of samples that are less than they should be."""

import gc
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.backends.base import Tensors
from tasks.facts import Placement, Workload
from tasks.measure.loop import sample
from tasks.measure.steady import drift, flat, oddities

ROOT = Path(__file__).resolve().parent.parent
FEEDS = [{"x": np.full(1, index)} for index in range(3)]
SHORT = {"warmup_ms": 0, "min_duration_s": 0.001}


class Counting:
    """A session that does nothing but remember which feed each call got."""

    placement = Placement(device="cpu", precision="fp32", threads=1)

    def __init__(self, pause_s: float = 0.0) -> None:
        self.seen: list[int] = []
        self.collecting: set[bool] = set()
        self._bound, self._pause_s = -1, pause_s

    def bind(self, inputs: Tensors) -> None:
        """Remember the feed."""
        self._bound = int(inputs["x"][0])

    def step(self) -> None:
        """Note the feed; maybe sleep."""
        self.seen.append(self._bound)
        self.collecting.add(gc.isenabled())
        if self._pause_s:
            time.sleep(self._pause_s)

    def read(self) -> dict[str, np.ndarray]:
        """Nothing."""
        return {}


def test_every_call_is_a_sample_or_dropped() -> None:
    """Samples and dropped warm-up calls together are all calls that were made, and feeds come in turn."""
    session = Counting()
    seen = sample(session, FEEDS, Workload(min_samples=700, repeats=5, **SHORT))
    assert seen.samples_ns.size + seen.warmup_dropped == len(session.seen)
    assert seen.samples_ns.size >= 140
    assert session.seen[-seen.samples_ns.size :][:4] == [0, 1, 2, 0]
    assert set(session.seen[: seen.warmup_dropped]) == {0, 1, 2}


def test_throughput_is_made_from_the_time_inside_the_boundary() -> None:
    """Requests go one after the other: staging between them belongs to the harness and is left out."""
    seen = sample(Counting(0.001), FEEDS, Workload(min_samples=20, repeats=1, **SHORT))
    assert seen.wall_ns == seen.samples_ns.sum()
    assert seen.samples_ns.min() >= 1_000_000


def test_both_minima_are_met() -> None:
    """Neither enough samples nor enough time alone ends a run."""
    seen = sample(Counting(0.001), FEEDS, Workload(min_samples=5, repeats=1, warmup_ms=0, min_duration_s=0.05))
    assert seen.wall_ns >= 40_000_000  # of the 50 ms that were asked for; the rest is staging
    assert seen.samples_ns.size > 5


def test_maximum_ends_a_run_with_a_warning() -> None:
    """A run that would take too long keeps what it has and says what is missing."""
    seen = sample(Counting(0.01), FEEDS, Workload(min_samples=1000, repeats=1, warmup_ms=0, min_duration_s=0.01, max_duration_s=0.05))
    assert 1 <= seen.samples_ns.size < 1000
    assert any("of 1000 samples: raise max_duration_s" in warning for warning in seen.warnings)


def test_warm_up_meets_its_minima() -> None:
    """Warm-up has at least the calls and the time that the workload asks for, and its first call is reported."""
    begin = time.perf_counter_ns()
    seen = sample(Counting(), FEEDS, Workload(warmup_iterations=30, warmup_ms=50, min_samples=1, repeats=1, min_duration_s=0.001))
    assert seen.warmup_dropped >= 30
    assert time.perf_counter_ns() - begin - seen.wall_ns >= 50_000_000
    assert seen.first_inference_ms > 0


def test_uneven_warm_up_is_bounded() -> None:
    """A level that never settles does not warm up for ever, and the samples say so."""

    class Slower(Counting):
        """Each call takes longer than the one before."""

        def step(self) -> None:
            """Sleep 50 us longer than before."""
            super().step()
            time.sleep(0.00005 * len(self.seen))

    seen = sample(Slower(), FEEDS, Workload(warmup_iterations=20, warmup_ms=1, min_samples=1, repeats=1, min_duration_s=0.001))
    assert 200 <= seen.warmup_dropped <= 250
    assert any("not flat" in warning for warning in seen.warnings)


def test_garbage_collector_is_off_only_while_timing() -> None:
    """No sample contains a collection, and the collector is on again afterwards."""
    session = Counting()
    sample(session, FEEDS, Workload(min_samples=10, repeats=1, **SHORT))
    assert False in session.collecting
    assert gc.isenabled()


def test_failing_step_leaves_the_collector_on() -> None:
    """An engine that fails in the middle does not leave the process without a collector."""

    class Failing(Counting):
        """Fails at the 200th call."""

        def step(self) -> None:
            """Fail late."""
            super().step()
            if len(self.seen) == 200:
                raise RuntimeError("out of tensors")

    with pytest.raises(RuntimeError):
        sample(Failing(), FEEDS, Workload(min_samples=1000, repeats=1, **SHORT))
    assert gc.isenabled()


def test_short_calls_are_named() -> None:
    """A call that is not much longer than the stopwatch itself is warned about."""
    assert any(
        "the stopwatch's own" in warning for warning in sample(Counting(), FEEDS, Workload(min_samples=50, repeats=1, **SHORT)).warnings
    )


def test_backward_clock_and_empty_samples_are_named() -> None:
    """Samples below and at zero stay and are warned about."""
    words = oddities(np.array([-5, 0, 0, 100_000, 100_000, 100_000]))
    assert any("backwards in 1 of 6" in word for word in words)
    assert any("2 of 6 samples took no time" in word for word in words)


@pytest.mark.parametrize(("factor", "word"), [(1.3, "slower"), (0.7, "faster"), (1.05, "")])
def test_drift_is_named(factor: float, word: str) -> None:
    """A last third that differs by more than a tenth makes the samples unstable."""
    samples = np.concatenate([np.full(200, 1_000_000), np.full(100, int(1_000_000 * factor))])
    found = [text for text in oddities(samples) if text.startswith("unstable")]
    assert bool(found) == bool(word)
    assert word in "".join(found)
    assert drift(samples) == pytest.approx(factor - 1)


@given(st.lists(st.integers(1_000, 10**9), min_size=4, max_size=200))
def test_constant_levels_are_flat(samples: list[int]) -> None:
    """Any level is flat when it is one level; a tenfold end never is."""
    assert flat(np.full(len(samples), samples[0]))
    rising = np.concatenate([np.full(len(samples), 1000), np.full(len(samples), 10_000)])
    assert not flat(rising)


def test_loop_needs_no_framework() -> None:
    """Importing the measuring code loads neither Prefect, MLflow, a runtime nor the model zoo."""
    heavy = {"prefect", "mlflow", "torch", "onnxruntime", "model_zoo", "pandas", "scipy"}
    code = f"import tasks.measure, tasks.measure.worker, sys; print(sorted({heavy} & {{m.split('.')[0] for m in sys.modules}}))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout == "[]\n"
