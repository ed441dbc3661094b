"""Percentiles of latency, with intervals that assume no distribution, and the number of samples below which there is none.

Two rules, two tables (recomputed by `samples_to_show` and `samples_to_decide`):

    percentile                                                             50   90   95   99  99.9
    may be shown: an interval of order statistics with 95% confidence       6   29   59  299  2995
    may decide:   LoadGen's early stopping at 99%, one miss allowed        11   64  130  662  6636

The deciding rule is MLCommons' (inference rules, "Early stopping"; loadgen/early_stopping.cc and results.cc, single stream): with
t samples above a limit, n samples prove at confidence c that the true percentile meets it when P(Binomial(n, 1 - p) <= t) <= 1 - c.
The estimate is the sample that is left as the largest after t - 1 were dropped, for the largest such t >= 1.

Both rest on independent samples. Samples in a row are not quite that, which is why a run also has a minimum duration and repeats.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import ceil
from typing import Literal

import numpy as np

SHOWN = 0.95
DECIDES = 0.99
MOST = 10**8  # no one samples longer


@dataclass(frozen=True)
class Estimate:
    """A percentile of latency in the unit of its samples. Numbers that the samples do not carry are None.

    Attributes:
        value: nearest-rank percentile, a latency that was measured.
        low, high: distribution-free 95% interval of the true percentile.
        upper: what the true percentile exceeds with less than 1% chance; only this one may meet an SLO.
        status: what these samples are good for.
        needed: samples in all for `status` to become "decides".
    """

    percentile: float
    value: float | None
    low: float | None
    high: float | None
    upper: float | None
    count: int
    status: Literal["decides", "shown", "not enough"]
    needed: int

    @property
    def missing(self) -> str:
        """'not enough samples for p99: have 200, need 662', or '' when it may decide."""
        return "" if self.status == "decides" else f"not enough samples for p{self.percentile:g}: have {self.count}, need {self.needed}"


def estimate(samples: np.ndarray, percentile: float) -> Estimate:
    """What these samples say about a percentile in (0, 100)."""
    ordered, q = np.sort(np.asarray(samples)), percentile / 100
    count, needed = ordered.size, samples_to_decide(percentile)
    if count < samples_to_show(percentile):
        return Estimate(percentile, None, None, None, None, count, "not enough", needed)
    low, high = _interval_ranks(count, q, SHOWN)
    upper = upper_estimate(ordered, percentile)
    status: Literal["decides", "shown"] = "shown" if upper is None else "decides"
    return Estimate(
        percentile, nearest_rank(ordered, percentile), float(ordered[low - 1]), float(ordered[high - 1]), upper, count, status, needed
    )


def nearest_rank(samples: np.ndarray, percentile: float) -> float:
    """The smallest sample that at least `percentile` percent of all do not exceed: a value that was measured."""
    rank = max(1, ceil(round(len(samples) * percentile / 100, 9)))  # rounded: 0.99 x 700 is 693, not 693.0000000000001
    return float(np.partition(np.asarray(samples), rank - 1)[rank - 1])


def upper_estimate(samples: np.ndarray, percentile: float) -> float | None:
    """LoadGen's early-stopping estimate: the true percentile is higher with less than 1% chance. None below `samples_to_decide`."""
    count = len(samples)
    drop = _misses(count, percentile / 100)
    return float(np.partition(np.asarray(samples), count - drop)[count - drop]) if drop else None


@cache
def samples_to_decide(percentile: float) -> int:
    """The fewest samples with which a percentile may decide: 662 for p99."""
    from scipy.stats import binom

    q = percentile / 100
    return _fewest(lambda n: binom.cdf(1, n, 1 - q) <= 1 - DECIDES)


@cache
def samples_to_show(percentile: float) -> int:
    """The fewest samples with which a percentile has a two-sided 95% interval: 299 for p99."""
    q = percentile / 100
    return _fewest(lambda n: q**n + (1 - q) ** n <= 1 - SHOWN)


def _misses(count: int, q: float) -> int:
    """The largest t >= 1 with P(Binomial(count, 1 - q) <= t) <= 1%, or 0."""
    from scipy.stats import binom

    t = int(binom.ppf(1 - DECIDES, count, 1 - q)) if count else 0  # the smallest t whose probability reaches 1%
    t = t if binom.cdf(t, count, 1 - q) <= 1 - DECIDES else t - 1
    return max(t, 0)


def _interval_ranks(count: int, q: float, confidence: float) -> tuple[int, int]:
    """Ranks (from 1) of the order statistics around the quantile; a tail that cannot be cut to its half leaves less to the other."""
    from scipy.stats import binom

    alpha = 1 - confidence
    high = int(binom.ppf(1 - alpha / 2, count, q)) + 1
    low = int(binom.ppf(alpha / 2, count, q))
    if high > count:
        high, low = count, int(binom.ppf(max(alpha - q**count, 0), count, q))
    if low < 1:
        low, high = 1, min(count, int(binom.ppf(1 - max(alpha - (1 - q) ** count, 0), count, q)) + 1)
    return low, high


def _fewest(enough: Callable[[int], bool]) -> int:
    """The smallest n >= 2 that is enough, where more always is."""
    high = 2
    while not enough(high) and high < MOST:
        high *= 2
    low = high // 2
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
