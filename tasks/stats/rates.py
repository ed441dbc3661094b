"""Throughput: completed work / wall time, in samples a second. Never batch / mean latency, never from trimmed samples."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, inf, log, sqrt

import numpy as np

from tasks.facts import Repeat

RESAMPLES = 1000


@dataclass(frozen=True)
class Rate:
    """A rate, or a ratio of two, with a two-sided interval.

    Attributes:
        value, low, high: per second (a ratio has no unit).
        count: processes it was seen in.
        how: which interval this is, for people.
        log_se, dof: standard error of the logarithm and its degrees of freedom: what `ratio` needs.
    """

    value: float
    low: float
    high: float
    count: int
    how: str
    log_se: float
    dof: float


def throughput(repeats: Sequence[Repeat], samples_ns: Sequence[np.ndarray], batch: int = 1, confidence: float = 0.95) -> Rate:
    """The rate of a cell: the geometric mean over its processes, with Student's t interval on the logarithms.

    Processes differ more from each other than calls within one do, so they are the unit. With a single process its samples are
    resampled in blocks (Kuensch 1989), and `how` says so: that interval knows nothing of other processes.

    Args:
        repeats: of one cell, at least one.
        samples_ns: their samples, in the same order.
        batch: requests completed by one call.
    """
    rates = [batch * repeat.count / (repeat.wall_ns / 1e9) for repeat in repeats]
    if len(rates) == 1:
        return _rate(log(rates[0]), _block_bootstrap(samples_ns[0]), inf, 1, "block bootstrap within one process", confidence)
    return geometric_mean(rates, confidence)


def geometric_mean(values: Sequence[float], confidence: float = 0.95) -> Rate:
    """The geometric mean of two or more positive values, such as rates of processes or ratios of ABBA cycles, with Student's t."""
    logs = np.log(values)
    error = float(logs.std(ddof=1)) / sqrt(logs.size)
    return _rate(float(logs.mean()), error, logs.size - 1, logs.size, f"Student's t over {logs.size} processes", confidence)


def ratio(candidate: Rate, baseline: Rate, confidence: float = 0.95) -> Rate:
    """candidate / baseline with Welch's interval on the logarithms."""
    a, b = candidate.log_se**2, baseline.log_se**2
    parts = a**2 / candidate.dof + b**2 / baseline.dof
    dof = (a + b) ** 2 / parts if parts else inf
    count = min(candidate.count, baseline.count)
    return _rate(log(candidate.value / baseline.value), sqrt(a + b), dof, count, "Welch's t on logarithms", confidence)


def _rate(level: float, error: float, dof: float, count: int, how: str, confidence: float) -> Rate:  # noqa: PLR0917
    from scipy.stats import t

    half = float(t.ppf((1 + confidence) / 2, dof)) * error
    return Rate(exp(level), exp(level - half), exp(level + half), count, how, error, dof)


def _block_bootstrap(samples_ns: np.ndarray, seed: int = 0) -> float:
    """Standard error of the logarithm of a mean, from moving blocks of about the root of the count."""
    count = samples_ns.size
    length = max(1, round(sqrt(count)))
    sums = np.concatenate([[0], np.cumsum(samples_ns, dtype=np.float64)])
    blocks = sums[length:] - sums[:-length]
    picks = np.random.default_rng(seed).integers(0, blocks.size, (RESAMPLES, max(1, count // length)))
    means = blocks[picks].mean(axis=1)
    return float(np.log(np.maximum(means, 1e-9)).std(ddof=1))
