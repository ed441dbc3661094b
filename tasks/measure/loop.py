"""The stopwatch. Times `session.step()` and nothing else; knows nothing of models, formats, accuracy or money.

Inputs are staged between two calls, outside the stopwatch. Warm-up takes the very path that is timed. Nothing is averaged,
trimmed or thrown away: what looks odd stays and is named in a warning.
"""

import gc
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from tasks.backends.base import Session, Tensors
from tasks.facts import Workload
from tasks.measure.steady import flat, oddities

CHUNK = 4096  # samples by which the buffer grows at first
WARMUP_SPAN = 10  # an uneven level may prolong the warm-up to so many times what was asked for


@dataclass(frozen=True)
class Sampled:
    """Samples of one process, in order.

    Attributes:
        samples_ns: int64, one per call, host to host.
        wall_ns: time spent inside the boundary: what throughput is made from. One request is in flight at a time, so that is all of the
            wall time but this harness's own staging of inputs, which differs from runtime to runtime (5 to 70 us a call).
        warmup_dropped: calls before the first sample.
        first_inference_ms: the very first call.
        warnings: what makes these samples less than they should be.
    """

    samples_ns: np.ndarray
    wall_ns: int
    warmup_dropped: int
    first_inference_ms: float
    warnings: tuple[str, ...]


def sample(session: Session, feeds: Sequence[Tensors], workload: Workload) -> Sampled:
    """Warm up, then time one call after the other, rotating over the feeds, until there are enough.

    Stops when both minima of the workload are met, or after `max_duration_s` with what it has and a warning.
    """
    wanted = -(-workload.min_samples // workload.repeats)
    warm, warnings = _warm_up(session, feeds, workload)
    with _no_garbage_collection():
        samples = _timed(session, feeds, wanted, int(workload.min_duration_s * 1e9), int(workload.max_duration_s * 1e9))
    if samples.size < wanted:
        seconds = workload.max_duration_s
        warnings.append(f"stopped after {seconds:g} s with {samples.size} of {wanted} samples: raise max_duration_s, or lower min_samples")
    return Sampled(samples, int(samples.sum()), len(warm), warm[0] / 1e6, (*warnings, *oddities(samples)))


def _warm_up(session: Session, feeds: Sequence[Tensors], workload: Workload) -> tuple[list[int], list[str]]:
    """Call until both minima are met and the level is flat, within bounds. Returns every call's nanoseconds."""
    warm: list[int] = []
    begin = time.perf_counter_ns()
    least_ns = int(workload.warmup_ms * 1e6)
    window = max(5, workload.warmup_iterations // 3)
    while True:
        part = _timed(session, feeds, window, 0, max(1, least_ns), offset=len(warm))
        warm += part.tolist()
        spent_ns = time.perf_counter_ns() - begin
        if len(warm) < workload.warmup_iterations or spent_ns < least_ns:
            continue
        if flat(np.array(warm)):
            return warm, []
        if len(warm) >= WARMUP_SPAN * workload.warmup_iterations and spent_ns >= WARMUP_SPAN * least_ns:
            return warm, [f"unstable: the level was not flat after {len(warm)} calls ({spent_ns / 1e9:.1f} s) of warm-up"]


def _timed(session: Session, feeds: Sequence[Tensors], wanted: int, least_ns: int, most_ns: int, *, offset: int = 0) -> np.ndarray:
    """At least one call, then until `wanted` calls and `least_ns` are reached, or `most_ns`."""
    bind, step, clock, feed_count = session.bind, session.step, time.perf_counter_ns, len(feeds)
    samples = np.empty(max(wanted, CHUNK), np.int64)
    count, start = 0, 0
    while True:
        bind(feeds[(offset + count) % feed_count])
        begin = clock()
        step()
        end = clock()
        if count == samples.size:
            samples = np.concatenate([samples, np.empty_like(samples)])
        samples[count] = end - begin
        count += 1
        start = start or begin
        spent_ns = end - start
        if (count >= wanted and spent_ns >= least_ns) or spent_ns >= most_ns:
            return samples[:count].copy()


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Python's collector would stop one call in some thousands."""
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
