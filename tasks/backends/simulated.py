"""A device that does not exist: its step times come from the target's table, its outputs from the real graph on this host.

It proves the gates, and shows a whole migration to a card that is not here. What it makes can never be approved.
"""

import os
import signal
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import numpy as np

from tasks.backends import ort
from tasks.backends.base import Built, Tensors, not_installed
from tasks.facts import Cell, Placement, Simulation

BLOCK = 4096  # random factors drawn at once, outside the timed call
SPIN_NS = 2_000_000  # the last stretch of a step is spun: sleeping is late by 50 us and more


class SimulatedBackend:
    """Runs on targets that have a `simulation`, and only there."""

    name = "simulated"
    wants: Literal["onnx", "pt2"] = "onnx"
    distributions: tuple[str, ...] = ("onnxruntime",)

    def missing(self, cell: Cell) -> str | None:
        simulation = cell.target.simulation
        if simulation is None:
            return f"{cell.target.name} is a real device: choose one of its backends, or a simulated target"
        if cell.recipe.precision not in simulation.step_us:
            known = ", ".join(simulation.step_us)
            return f"{cell.target.name} has no step time for {cell.recipe.precision}: its table knows {known}"
        if cell.recipe.backends and self.name not in cell.recipe.backends:
            return f"recipe {cell.recipe.name} is for {', '.join(cell.recipe.backends)}, not for a simulated device"
        return not_installed({"onnxruntime": ""})

    def build(self, source: Path, cell: Cell, out: Path) -> Built:
        """The graph itself, loaded once."""
        return ort.BACKEND.build(source, cell, out)

    @contextmanager
    def open(self, engine: Path, cell: Cell) -> Iterator["SimulatedSession"]:
        with ort.BACKEND.open(engine, cell) as host:
            yield SimulatedSession(host, cell)


class SimulatedSession:
    """`step` takes the table's time and no more; `read` computes the outputs on the host, outside the stopwatch.

    A feed takes the same time whatever its size: the table is for one request.
    """

    def __init__(self, host: ort.OrtSession, cell: Cell) -> None:
        simulation = cell.target.simulation
        assert simulation is not None  # missing() said so
        self.placement = _placement(host, cell, simulation)
        self._host, self._simulation = host, simulation
        self._mean_ns = simulation.step_us[cell.recipe.precision] * 1000
        self._error = simulation.output_error.get(cell.recipe.precision, 0.0)
        self._rng = np.random.default_rng(simulation.seed)
        self._durations: list[float] = []
        self._began_ns = 0
        self._inputs: Tensors = {}

    def bind(self, inputs: Tensors) -> None:
        self._host.bind(inputs)
        self._inputs = inputs
        self._draw()

    def step(self) -> None:
        start = time.perf_counter_ns()
        if self._simulation.fault != "none":
            _fail(self._simulation.fault)
        if not self._durations:
            self._draw()
        until = start + int(self._durations.pop() * self._slowdown(start))
        while (left := until - time.perf_counter_ns()) > 0:
            if left > 2 * SPIN_NS:
                time.sleep((left - SPIN_NS) / 1e9)

    def read(self) -> dict[str, np.ndarray]:
        self._host.step()
        return {name: self._distorted(name, array) for name, array in self._host.read().items()}

    def _draw(self) -> None:
        """Step times of the next block, in ns: normal noise, never below half the mean, and a slow tail."""
        if len(self._durations) > BLOCK // 2:
            return
        factors = np.maximum(self._rng.normal(1.0, self._simulation.noise, BLOCK), 0.5)
        factors[self._rng.random(BLOCK) < self._simulation.slow_share] *= 10
        self._durations += (self._mean_ns * factors).tolist()

    def _slowdown(self, now_ns: int) -> float:
        """Drift and throttling since the first step."""
        self._began_ns = self._began_ns or now_ns
        loaded_s = (now_ns - self._began_ns) / 1e9
        throttle = self._simulation.throttle_after_s
        return (1 + self._simulation.drift_per_s * loaded_s) * (2 if throttle is not None and loaded_s > throttle else 1)

    def _distorted(self, name: str, array: np.ndarray) -> np.ndarray:
        """An output as this device would give it: the same inputs always give the same error."""
        if not np.issubdtype(array.dtype, np.floating):
            return array
        if self._simulation.fault == "nan":
            return np.full_like(array, np.nan)
        if not self._error:
            return array
        content = b"".join(np.ascontiguousarray(value).tobytes() for value in self._inputs.values())
        rng = np.random.default_rng([self._simulation.seed, zlib.crc32(content), zlib.crc32(name.encode())])
        scale = self._error * float(np.sqrt(np.mean(np.square(array, dtype=np.float64))))
        return (array + rng.normal(0.0, scale, array.shape)).astype(array.dtype)


def _fail(fault: str) -> None:
    """Die or hang as a driver would: without an exception to catch."""
    if fault == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    while fault == "hang":
        time.sleep(3600)


def _placement(host: ort.OrtSession, cell: Cell, simulation: Simulation) -> Placement:
    kinds = Counter(host.operators)
    fallen = {kind: count for kind, count in kinds.items() if kind in simulation.fallback}
    return Placement(
        device=cell.target.device,
        providers=("simulated", "cpu") if fallen else ("simulated",),
        precision=cell.recipe.precision,
        threads=cell.target.threads,
        nodes=kinds.total(),
        nodes_elsewhere=sum(fallen.values()),
        elsewhere=tuple(sorted(fallen)),
    )


BACKEND = SimulatedBackend()
