"""Paired differences: published values, coverage, error rates, and the verdicts that come from them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from tasks.facts import Margin, Metric
from tasks.stats import needed_pairs, non_inferior, paired, paired_difference, pairs_to_settle, tango_interval, value

TOP1 = Metric(name="top1", unit="image", proportion=True)
F1 = Metric(name="f1", unit="clip")
CER = Metric(name="cer", unit="line", higher_is_better=False)
PERPLEXITY = Metric(name="perplexity", unit="window", higher_is_better=False, transform="exp")
ONE_POINT = Margin(value=0.01, unit="points")


def answers(better: int, worse: int, both: int, neither: int) -> tuple[np.ndarray, np.ndarray]:
    """Baseline and candidate with so many pairs of each kind."""
    baseline = np.repeat([0.0, 1.0, 1.0, 0.0], [better, worse, both, neither])
    candidate = np.repeat([1.0, 0.0, 1.0, 0.0], [better, worse, both, neither])
    return np.stack([baseline, np.ones_like(baseline)], 1), np.stack([candidate, np.ones_like(candidate)], 1)


def measured(seed: int, count: int = 500, shift: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Correlated scores with lengths as denominators; the candidate's are higher by `shift` per unit of length."""
    random = np.random.default_rng(seed)
    lengths = random.integers(5, 50, count).astype(float)
    baseline = random.gamma(2.0, 0.05, count) * lengths
    candidate = baseline + (shift + random.normal(0, 0.02, count)) * lengths
    return np.stack([baseline, lengths], 1), np.stack([candidate, lengths], 1)


@pytest.mark.parametrize(
    ("better", "worse", "count", "confidence", "low", "high"),
    [
        (1, 7, 21, 0.95, -0.517, -0.026),  # airway hyper-responsiveness: Fagerland, Lydersen and Laake 2014, Table VII
        (28, 25, 618, 0.90, -0.0148, 0.0247),  # R: PropCIs::scoreci.mp(25, 28, 618, 0.90)
    ],
)
def test_published_intervals(better: int, worse: int, count: int, confidence: float, low: float, high: float) -> None:
    """Tango's interval has the published ends."""
    digits = 3 if confidence == 0.95 else 4
    assert tuple(round(end, digits) for end in tango_interval(better, worse, count, confidence)) == (low, high)


@pytest.mark.parametrize("count", [1, 20, 500])
def test_no_discordant_pair_has_a_width(count: int) -> None:
    """Identical answers do not prove identical models: the bounds are +- z^2 / (n + z^2)."""
    z2 = 1.959963984540054**2
    assert tango_interval(0, 0, count, 0.95) == pytest.approx((-z2 / (count + z2), z2 / (count + z2)), abs=1e-9)


def test_all_pairs_discordant() -> None:
    """The ends of the scale are reached and not overstepped."""
    low, high = tango_interval(12, 0, 12, 0.95)
    assert (0 < low < 1, high) == (True, 1.0)
    assert tango_interval(0, 12, 12, 0.95) == pytest.approx((-1.0, -low))


@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 400))
def test_tango_is_symmetric_and_contains_what_was_seen(better: int, worse: int, same: int) -> None:
    """Swapping the two models mirrors the interval; it contains the observed difference and lies within [-1, 1]."""
    count = max(better + worse + same, 1)
    low, high = tango_interval(better, worse, count, 0.9)
    assert -1 <= low <= (better - worse) / count <= high <= 1
    assert tango_interval(worse, better, count, 0.9) == pytest.approx((-high, -low), abs=1e-8)


def test_tango_coverage() -> None:
    """With true difference -2 points and 7% discordance, 90% intervals of 300 pairs cover in about 90% of 2000 runs."""
    random = np.random.default_rng(1)
    draws = random.multinomial(300, [0.025, 0.045, 0.93], 2000)
    ends = [tango_interval(int(better), int(worse), 300, 0.9) for better, worse, _ in draws]
    covered = sum(low <= -0.02 <= high for low, high in ends)
    assert binom.ppf(0.001, 2000, 0.885) <= covered <= binom.ppf(0.999, 2000, 0.93)


def test_bootstrap_coverage() -> None:
    """A paired bootstrap of a ratio of sums covers the true difference in about 90% of 200 runs."""
    covered = 0
    for seed in range(200):
        found = paired_difference(F1, *measured(seed, 120, shift=0.005), confidence=0.95)
        covered += found.low <= 0.005 <= found.high
    assert covered >= binom.ppf(0.001, 200, 0.88)


def test_bootstrap_agrees_with_theory() -> None:
    """For a plain mean the bounds are those of the normal approximation, within a tenth of their width."""
    random = np.random.default_rng(5)
    before = np.stack([random.normal(1, 0.3, 2000), np.ones(2000)], 1)
    after = before + np.stack([random.normal(0.01, 0.1, 2000), np.zeros(2000)], 1)
    gain = after[:, 0] - before[:, 0]
    half = 1.6449 * gain.std(ddof=1) / np.sqrt(2000)
    found = paired_difference(F1, before, after, 0.95)
    assert (found.low, found.high) == pytest.approx((gain.mean() - half, gain.mean() + half), abs=0.2 * half)


def test_same_seed_same_interval() -> None:
    """An interval can be recomputed to the last digit; another seed moves it a little."""
    pairs = measured(3)
    assert paired_difference(CER, *pairs, 0.95) == paired_difference(CER, *pairs, 0.95)
    other = paired_difference(CER, *pairs, 0.95, seed=1)
    assert other.low == pytest.approx(paired_difference(CER, *pairs, 0.95).low, rel=0.2)


@pytest.mark.parametrize("metric", [F1, CER, PERPLEXITY])
def test_identical_outputs(metric: Metric) -> None:
    """Identical scores give a difference of zero with bounds by the rule of three, and say so."""
    before, _ = measured(0, 400)
    found = paired_difference(metric, before, before, 0.95)
    assert (found.value, found.discordant) == (0.0, 0)
    assert found.high == -found.low == pytest.approx(value(metric, before) * (1 - 0.05 ** (1 / 400)))
    assert "rule of three" in found.note


@pytest.mark.parametrize("metric", [F1, CER])
def test_two_that_score_nothing_are_not_proven_alike(metric: Metric) -> None:
    """A value of zero is no reason for a width of zero: thirty samples leave room for a tenth."""
    nothing = np.stack([np.zeros(30), np.ones(30)], 1)
    found = paired_difference(metric, nothing, nothing, 0.95)
    assert found.high == -found.low == pytest.approx(1 - 0.05 ** (1 / 30))
    assert non_inferior(found, ONE_POINT, metric).verdict == "unknown"


def test_value_is_a_ratio_of_sums() -> None:
    """A metric is not the mean of its samples' ratios; perplexity is the exponential; no denominator is NaN."""
    pairs = np.array([[1.0, 2.0], [3.0, 4.0]])
    assert value(F1, pairs) == pytest.approx(4 / 6)
    assert value(PERPLEXITY, pairs) == pytest.approx(np.exp(4 / 6))
    assert np.isnan(value(F1, np.zeros((3, 2))))


def test_undefined_metric_is_unknown() -> None:
    """Samples on which the metric is not defined decide nothing."""
    found = paired_difference(F1, np.zeros((30, 2)), np.ones((30, 2)), 0.95)
    assert non_inferior(found, ONE_POINT, F1).verdict == "unknown"


@pytest.mark.parametrize("shapes", [((3, 2), (4, 2)), ((0, 2), (0, 2)), ((3,), (3,))])
def test_other_samples_are_refused(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    """Pairs need two scores of the same samples."""
    with pytest.raises(ValueError, match="not the same samples"):
        paired_difference(TOP1, np.ones(shapes[0]), np.ones(shapes[1]), 0.95)


@pytest.mark.parametrize(
    ("pairs", "verdict"),
    [
        ((3, 5, 950, 42), "pass"),
        ((0, 60, 900, 40), "fail"),
        ((10, 15, 75, 0), "unknown"),
        ((0, 0, 50, 0), "unknown"),
        ((0, 0, 990, 10), "pass"),
    ],
)
def test_verdict_on_answers(pairs: tuple[int, int, int, int], verdict: str) -> None:
    """One point of margin: a near twin of 1000 samples passes, six points of loss fail, too few samples leave it open."""
    assert non_inferior(paired_difference(TOP1, *answers(*pairs), 0.95), ONE_POINT, TOP1).verdict == verdict


def test_unit_of_the_margin_decides() -> None:
    """0.8 points of 76.5% top-1 is more than 1% of it relative, and less than one point."""
    found = paired_difference(TOP1, *answers(0, 3200, 302_800, 94_000), 0.95)
    assert non_inferior(found, ONE_POINT, TOP1).verdict == "pass"
    assert non_inferior(found, Margin(value=0.01, unit="relative"), TOP1).verdict == "fail"


def test_direction_of_the_metric() -> None:
    """A higher error rate is a loss, a higher F1 is not."""
    pairs = measured(2, 800, shift=0.02)
    lower, higher = (non_inferior(paired_difference(metric, *pairs, 0.95), ONE_POINT, metric) for metric in (CER, F1))
    assert (lower.verdict, higher.verdict) == ("fail", "pass")
    assert lower.loss == pytest.approx(-higher.loss)
    assert lower.low <= lower.loss <= lower.high


def test_few_pairs_never_pass_a_bootstrap() -> None:
    """A handful of samples is not evidence, however well they agree."""
    before, after = measured(0, 12, shift=0.5)
    assert non_inferior(paired_difference(F1, before, after, 0.95), ONE_POINT, F1).verdict == "unknown"


def test_a_truly_worse_model_rarely_passes() -> None:
    """A model that is worse by exactly the margin passes in at most 5% of runs, give or take chance (a 3%-on-100 gate: 34%)."""
    random, passed = np.random.default_rng(11), 0
    for better, worse, _ in random.multinomial(400, [0.02, 0.06, 0.92], 1000):
        low, _ = tango_interval(int(better), int(worse), 400, 0.9)
        passed += low > -0.04
    assert passed <= binom.ppf(0.999, 1000, 0.055)


@given(st.floats(0.001, 0.2), st.floats(0.002, 0.05))
@settings(max_examples=50)
def test_needed_pairs_grow_as_they_should(discordance: float, margin: float) -> None:
    """Half the margin needs four times the pairs, and a model at the margin can never be proven."""
    wide, narrow = needed_pairs(discordance, margin), needed_pairs(discordance, margin / 2)
    assert narrow == pytest.approx(4 * wide, rel=0.01, abs=4)
    assert needed_pairs(discordance, margin, loss=margin) is None


def test_planned_power() -> None:
    """With the planned number of pairs, identical models pass in about the promised 80% of runs."""
    count = needed_pairs(0.04, 0.01)
    random = np.random.default_rng(2)
    passed = sum(tango_interval(int(b), int(w), count, 0.9)[0] > -0.01 for b, w, _ in random.multinomial(count, [0.02, 0.02, 0.96], 600))
    assert 0.74 * 600 <= passed <= 0.86 * 600


def test_pairs_to_settle() -> None:
    """An inconclusive difference says how many pairs would settle it; one that is worse than the margin says that none would."""
    found = paired_difference(TOP1, *answers(4, 4, 180, 12), 0.95)
    assert non_inferior(found, ONE_POINT, TOP1).verdict == "unknown"
    assert 1500 < pairs_to_settle(found, ONE_POINT, TOP1) < 4000
    assert pairs_to_settle(paired_difference(TOP1, *answers(1, 7, 180, 12), 0.95), ONE_POINT, TOP1) is None


def test_resampling_in_blocks_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A set too large to be resampled at once gives the same numbers in blocks."""
    whole = paired_difference(F1, *measured(4, 300), 0.95)
    monkeypatch.setattr(paired, "BATCH", 300 * 700)
    assert paired_difference(F1, *measured(4, 300), 0.95) == whole
