"""Percentiles exist only with enough samples, and their bounds hold what they promise."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, quantile_test

from tasks.stats import estimate, nearest_rank, samples_to_decide, samples_to_show, upper_estimate


@pytest.mark.parametrize(("percentile", "shown", "decides"), [(50, 6, 11), (90, 29, 64), (95, 59, 130), (99, 299, 662), (99.9, 2995, 6636)])
def test_published_minima(percentile: float, shown: int, decides: int) -> None:
    """The minima are LoadGen's (h_min + 1 of its early stopping at 99%) and those of a 95% order-statistic interval."""
    assert (samples_to_show(percentile), samples_to_decide(percentile)) == (shown, decides)


@pytest.mark.parametrize(("percentile", "count"), [(99, 661), (90, 63), (50, 10)])
def test_one_sample_short_decides_nothing(percentile: float, count: int) -> None:
    """One sample below the minimum there is no upper estimate, and the text says what is needed."""
    samples = np.arange(count)
    assert upper_estimate(samples, percentile) is None
    assert upper_estimate(np.arange(count + 1), percentile) == count
    found = estimate(samples, percentile)
    assert (found.status, found.upper) == ("shown", None)
    assert found.missing == f"not enough samples for p{percentile}: have {count}, need {count + 1}"


@pytest.mark.parametrize("count", [0, 1, 298])
def test_too_few_to_show(count: int) -> None:
    """Too few samples give no number at all, not even for people."""
    found = estimate(np.arange(count), 99)
    assert (found.value, found.low, found.high, found.upper, found.status) == (None, None, None, None, "not enough")


@pytest.mark.parametrize(
    ("count", "percentile", "rank"), [(100, 99, 99), (700, 99, 693), (5, 50, 3), (4, 50, 2), (1, 99, 1), (1000, 99.9, 999)]
)
def test_nearest_rank(count: int, percentile: float, rank: int) -> None:
    """A percentile is the sample at the smallest rank that covers its share, whatever the order of samples."""
    assert nearest_rank(np.random.default_rng(0).permutation(count) + 1, percentile) == rank


@pytest.mark.parametrize("count", [662, 1000, 5000, 60_000])
def test_upper_estimate_follows_loadgen(count: int) -> None:
    """The estimate is sorted[count - t] for the largest t whose binomial tail is within 1%, as in loadgen/results.cc."""
    t = max(t for t in range(1, count // 50) if binom.cdf(t, count, 0.01) <= 0.01)
    assert upper_estimate(np.arange(count), 99) == count - t


def test_upper_estimate_holds_its_promise() -> None:
    """Over 4000 runs of 700 exponential samples the estimate is below the true p99 in fewer than 1% (here: by a binomial bound)."""
    random, truth = np.random.default_rng(7), -np.log(0.01)
    missed = sum(upper_estimate(random.exponential(size=700), 99) < truth for _ in range(4000))
    assert missed <= binom.ppf(0.9999, 4000, 0.01)


@pytest.mark.parametrize(("percentile", "count"), [(50, 40), (90, 300), (99, 1500)])
def test_interval_coverage(percentile: float, count: int) -> None:
    """The interval covers the true percentile in at least 95% of 2000 runs, give or take chance."""
    random, truth, covered = np.random.default_rng(3), -np.log(1 - percentile / 100), 0
    for _ in range(2000):
        found = estimate(random.exponential(size=count), percentile)
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= truth <= found.high
    assert covered >= binom.ppf(0.0001, 2000, 0.95)


@pytest.mark.parametrize(("percentile", "count"), [(50, 41), (90, 200), (95, 500)])
def test_interval_agrees_with_scipy(percentile: float, count: int) -> None:
    """scipy's distribution-free interval of a quantile has the same ends, give or take one rank."""
    samples = np.arange(count)
    theirs = quantile_test(samples, p=percentile / 100).confidence_interval(0.95)
    ours = estimate(samples, percentile)
    assert ours.low == pytest.approx(theirs.low, abs=1)
    assert ours.high == pytest.approx(theirs.high, abs=1)


@given(st.integers(0, 2**32), st.integers(662, 900), st.sampled_from([50, 90, 95, 99]), st.integers(1, 10**9))
def test_order_of_bounds(seed: int, count: int, percentile: int, most: int) -> None:
    """low <= value <= high, the deciding estimate is never below the observed percentile, and all were measured; ties included."""
    samples = np.random.default_rng(seed).integers(0, most, count)
    found = estimate(samples, percentile)
    assert found.low <= found.value <= found.high
    assert found.upper >= found.value
    assert {found.low, found.value, found.high, found.upper} <= set(samples.tolist())
