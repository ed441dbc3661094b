"""Is a candidate no worse than the baseline, on the same samples? Paired differences and non-inferiority.

A one-sided test at alpha = 1 - confidence is the same as comparing the margin with one end of the two-sided (1 - 2 alpha)
interval. So with 0.95, `low` and `high` are each a 95% bound, and together a 90% interval: the usual choice for non-inferiority.
"""

from dataclasses import dataclass
from math import ceil
from typing import Literal

import numpy as np

from tasks.facts import Margin, Metric
from tasks.stats.tango import tango_interval

RESAMPLES = 4000
BATCH = 4_000_000  # indices drawn at a time: bounds memory at some 100 MB
IDENTICAL = "no pair differs: bounds by the rule of three"
FEW_PAIRS = 20  # a bootstrap of fewer knows too little of the tails


@dataclass(frozen=True)
class Difference:
    """candidate - baseline in the metric's own unit, whichever direction is better.

    Attributes:
        value: observed difference.
        low, high: one-sided bounds, each at `confidence`.
        discordant: pairs on which the two differ.
        note: what a reader must know of this interval; '' mostly.
    """

    value: float
    low: float
    high: float
    baseline_value: float
    candidate_value: float
    count: int
    discordant: int
    confidence: float
    note: str = ""


@dataclass(frozen=True)
class NonInferiority:
    """Whether the candidate is worse by less than the margin; losses in the margin's unit, positive is worse.

    Attributes:
        verdict: pass when the loss is surely below the limit, fail when it surely is not, else unknown.
        loss, low, high: observed loss and its bounds.
        limit: the margin.
    """

    verdict: Literal["pass", "fail", "unknown"]
    loss: float
    low: float
    high: float
    limit: float
    unit: str


def value(metric: Metric, pairs: np.ndarray) -> float:
    """The metric of float64 (samples, 2) numerators and denominators; NaN where the denominators sum to nothing."""
    return float(_values(metric, pairs.sum(axis=0)))


def paired_difference(metric: Metric, baseline: np.ndarray, candidate: np.ndarray, confidence: float, seed: int = 0) -> Difference:
    """The difference on the same samples in the same order: Tango's score interval for right or wrong, else a paired bootstrap.

    Args:
        baseline, candidate: float64 (samples, 2).
        confidence: of each end of the interval, see the module's text.

    Raises:
        ValueError: the two are not of the same samples.
    """
    if baseline.shape != candidate.shape or baseline.ndim != 2 or not len(baseline):
        raise ValueError(f"not the same samples: {baseline.shape} and {candidate.shape}")
    before, after = value(metric, baseline), value(metric, candidate)
    discordant = int((baseline != candidate).any(axis=1).sum())
    if metric.proportion:
        better, worse = _discordance(baseline, candidate)
        low, high, note = *tango_interval(better, worse, len(baseline), 2 * confidence - 1), ""
    else:
        low, high, note = _bootstrap(metric, baseline, candidate, confidence, seed)
    return Difference(after - before, low, high, before, after, len(baseline), discordant, confidence, note)


def non_inferior(difference: Difference, margin: Margin, metric: Metric) -> NonInferiority:
    """Compare a difference with a margin. A relative margin is a share of the observed baseline, taken as known (as MLPerf's 99% is)."""
    scale = abs(difference.baseline_value) if margin.unit == "relative" else 1.0
    if not scale or not np.isfinite(difference.value):
        return NonInferiority("unknown", np.nan, np.nan, np.nan, margin.value, margin.unit)
    ends = (difference.low / scale, difference.high / scale)
    low, high = (-ends[1], -ends[0]) if metric.higher_is_better else ends
    loss = (-1 if metric.higher_is_better else 1) * difference.value / scale
    verdict: Literal["pass", "fail", "unknown"] = "pass" if high < margin.value else "fail" if low > margin.value else "unknown"
    if not metric.proportion and difference.count < FEW_PAIRS:
        verdict = "unknown"
    return NonInferiority(verdict, loss, low, high, margin.value, margin.unit)


def needed_pairs(discordance: float, margin: float, loss: float = 0.0, confidence: float = 0.95, power: float = 0.8) -> int | None:
    """Pairs that a non-inferiority test needs: plan with it before a run, or say what an inconclusive one lacks.

    n = (z_confidence + z_power)^2 x variance / (margin - loss)^2, with the variance of one pair's difference: discordance - loss^2
    for right or wrong (Nam 1997).

    Args:
        discordance: share of pairs on which the two differ (for other metrics: variance of one pair's difference plus loss^2).
        margin, loss: in points, positive is worse. None when the loss is not below the margin: no number of pairs would pass.
    """
    from scipy.stats import norm

    if loss >= margin:
        return None
    variance = max(discordance - loss**2, 0.0)
    return max(1, ceil(float((norm.ppf(confidence) + norm.ppf(power)) ** 2) * variance / (margin - loss) ** 2))


def pairs_to_settle(difference: Difference, margin: Margin, metric: Metric, power: float = 0.8) -> int | None:
    """How many pairs in all an inconclusive difference would need, if what was observed is the truth. None: no number would do."""
    from scipy.stats import norm

    judged = non_inferior(difference, margin, metric)
    spread = (judged.high - judged.low) / (2 * float(norm.ppf(difference.confidence)))  # standard error over all pairs
    if not np.isfinite(spread):
        return None
    return needed_pairs(spread**2 * difference.count + judged.loss**2, judged.limit, judged.loss, difference.confidence, power)


def _values(metric: Metric, sums: np.ndarray) -> np.ndarray:
    """Metric values from sums (..., 2)."""
    top, bottom = sums[..., 0], sums[..., 1]
    quotients = np.divide(top, bottom, out=np.full_like(top, np.nan, dtype=np.float64), where=bottom != 0)
    return np.exp(quotients) if metric.transform == "exp" else quotients


def _discordance(baseline: np.ndarray, candidate: np.ndarray) -> tuple[int, int]:
    """Pairs that the candidate alone gets right, and the baseline alone."""
    right_before, right_after = baseline[:, 0] > 0.5, candidate[:, 0] > 0.5
    return int((right_after & ~right_before).sum()), int((right_before & ~right_after).sum())


def _bootstrap(metric: Metric, baseline: np.ndarray, candidate: np.ndarray, confidence: float, seed: int) -> tuple[float, float, str]:
    """BCa bounds (Efron 1987) over resampled pairs, and a note where they mean little.

    Where no pair differs, a bootstrap would claim a width of nothing. As many as 1 - alpha^(1 / n) of all samples may differ and
    none of n do (the rule of three); the bounds suppose that those are lost altogether.
    """
    from scipy.stats import norm

    count = len(baseline)
    observed = value(metric, candidate) - value(metric, baseline)
    if not np.isfinite(observed):
        return np.nan, np.nan, "the metric is not defined on these samples"
    if not (baseline != candidate).any():
        reach = (1 - (1 - confidence) ** (1 / count)) * (abs(value(metric, baseline)) or 1.0)  # of nothing, all the scale
        return -reach, reach, IDENTICAL
    note = f"{count} pairs are too few for a bootstrap" if count < FEW_PAIRS else ""
    draws = np.sort(_resampled(metric, baseline, candidate, seed))
    draws = draws[np.isfinite(draws)]
    left_out = _differences(metric, baseline.sum(axis=0) - baseline, candidate.sum(axis=0) - candidate)
    pull = left_out[np.isfinite(left_out)].mean() - left_out[np.isfinite(left_out)]
    acceleration = float((pull**3).sum() / (6 * max((pull**2).sum(), 1e-300) ** 1.5))
    share = ((draws < observed).sum() + (draws <= observed).sum()) / (2 * draws.size)
    bias = float(norm.ppf(np.clip(share, 1 / draws.size, 1 - 1 / draws.size)))
    z = bias + norm.ppf([1 - confidence, confidence])
    low, high = np.quantile(draws, norm.cdf(bias + z / (1 - acceleration * z)))
    return float(low), float(high), note


def _resampled(metric: Metric, baseline: np.ndarray, candidate: np.ndarray, seed: int) -> np.ndarray:
    """Differences of RESAMPLES draws of pairs with replacement."""
    count, random = len(baseline), np.random.default_rng(seed)
    columns = np.ascontiguousarray(np.hstack([baseline, candidate]).T)
    parts = []
    rows = max(1, min(RESAMPLES, BATCH // count))
    for start in range(0, RESAMPLES, rows):
        picks = random.integers(0, count, (min(rows, RESAMPLES - start), count), dtype=np.int32)
        sums = np.stack([column[picks].sum(axis=1) for column in columns], axis=-1)
        parts.append(_differences(metric, sums[:, :2], sums[:, 2:]))
    return np.concatenate(parts)


def _differences(metric: Metric, before: np.ndarray, after: np.ndarray) -> np.ndarray:
    return _values(metric, after) - _values(metric, before)
