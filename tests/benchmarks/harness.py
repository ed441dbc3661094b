"""What the stopwatch itself costs: the loop around a session that does nothing."""

from collections.abc import Mapping

import numpy as np

from tasks.facts import Placement, Workload
from tasks.measure.loop import sample
from tasks.stats import estimate
from tests.benchmarks.figure import Figure

GOAL_NS = 1000
WORKLOAD = Workload(min_samples=200_000, min_duration_s=1, repeats=1)


class Null:
    """A session whose step returns at once, in Python, like that of every backend."""

    placement = Placement(device="cpu", precision="none", threads=1)

    def bind(self, inputs: Mapping[str, np.ndarray]) -> None:
        """Take no inputs."""

    def step(self) -> None:
        """Do nothing."""

    def read(self) -> dict[str, np.ndarray]:
        """Give nothing."""
        return {}


def overhead() -> Figure:
    """Median and p99 of what the loop reports for nothing."""
    samples = sample(Null(), [{}], WORKLOAD).samples_ns
    median, tail = estimate(samples, 50), estimate(samples, 99)
    return Figure(
        name="harness_overhead_ns",
        unit="ns",
        goal=f"<= {GOAL_NS}",
        value=median.value,
        low=median.low,
        high=median.high,
        met=median.value is not None and median.value <= GOAL_NS,
        detail=f"median of {samples.size:,} calls of a session that does nothing; p99 {tail.value:.0f} ns",
    )
