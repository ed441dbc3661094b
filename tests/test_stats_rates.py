"""Throughput with an interval over processes, and ratios of two."""

from datetime import UTC, datetime

import numpy as np
import pytest

from tasks.facts import Repeat
from tasks.stats import ratio, throughput


def a_repeat(samples_ns: np.ndarray, gap_ns: int = 0) -> Repeat:
    """A process that made these samples, with a gap after each."""
    return Repeat(
        samples="0" * 64,
        count=samples_ns.size,
        wall_ns=int(samples_ns.sum()) + gap_ns * samples_ns.size,
        warmup_dropped=0,
        load_s=0,
        first_inference_ms=0,
        peak_rss_bytes=0,
        started=datetime(2026, 1, 1, tzinfo=UTC),
    )


def some_samples(seed: int, level_ns: float = 1e6, count: int = 400) -> np.ndarray:
    """Noisy calls around a level."""
    return np.random.default_rng(seed).normal(level_ns, level_ns / 20, count).astype(np.int64)


def rate_of(levels_ns: list[float], batch: int = 1):  # noqa: ANN201
    """The rate over processes with these levels."""
    samples = [some_samples(index, level) for index, level in enumerate(levels_ns)]
    return throughput([a_repeat(one) for one in samples], samples, batch)


def test_completed_work_over_wall_time() -> None:
    """A thousand calls a second of batch 8 are 8000 requests a second; time between the calls counts."""
    samples = np.full(100, 1_000_000)
    assert throughput([a_repeat(samples)] * 3, [samples] * 3, batch=8).value == pytest.approx(8000)
    assert throughput([a_repeat(samples, gap_ns=1_000_000)] * 3, [samples] * 3, batch=8).value == pytest.approx(4000)


def test_interval_is_over_processes() -> None:
    """Student's t on logarithms: five rates in a known pattern give the textbook interval."""
    logs = np.log([900.0, 950.0, 1000.0, 1050.0, 1100.0])
    samples = [np.full(50, round(1e9 / rate)) for rate in np.exp(logs)]
    found = throughput([a_repeat(one) for one in samples], samples)
    half = 2.776445 * logs.std(ddof=1) / np.sqrt(5)  # t of 97.5% with 4 degrees of freedom
    assert found.value == pytest.approx(np.exp(logs.mean()), rel=1e-5)
    assert (found.low, found.high) == pytest.approx((np.exp(logs.mean() - half), np.exp(logs.mean() + half)), rel=1e-4)
    assert found.how == "Student's t over 5 processes"


def test_single_process_is_labelled() -> None:
    """One process has an interval of its own samples, which says that it knows no other process."""
    found = rate_of([1e6])
    assert "within one process" in found.how
    assert found.low < found.value < found.high
    assert found.high / found.low < 1.05


def test_blocks_see_correlation() -> None:
    """Samples that come in slow and fast stretches are less certain than the same samples shuffled."""
    stretches = np.repeat(np.where(np.arange(40) % 2, 2_000_000, 1_000_000), 25)
    shuffled = np.random.default_rng(0).permutation(stretches)
    clustered, mixed = (throughput([a_repeat(one)], [one]) for one in (stretches, shuffled))
    assert clustered.log_se > 2 * mixed.log_se


def test_one_sample_is_a_rate() -> None:
    """A single call in a single process has a rate."""
    samples = np.array([5_000_000])
    assert throughput([a_repeat(samples)], [samples]).value == pytest.approx(200)


def test_ratio_of_a_rate_with_itself_contains_one() -> None:
    """A against A: the interval contains 1, and its width is what this machine can tell apart."""
    found = ratio(rate_of([1.0e6, 1.02e6, 0.99e6, 1.01e6]), rate_of([1.01e6, 0.98e6, 1.0e6, 1.02e6]))
    assert found.low < 1 < found.high


def test_ratio_of_different_rates() -> None:
    """Twice as fast is a ratio of 2 with an interval that excludes 1; swapped, it is a half."""
    slow, fast = rate_of([1.0e6, 1.02e6, 0.99e6, 1.01e6]), rate_of([0.5e6, 0.51e6, 0.49e6, 0.5e6])
    found, swapped = ratio(fast, slow), ratio(slow, fast)
    assert found.value == pytest.approx(2, rel=0.03)
    assert found.low > 1.8
    assert swapped.value == pytest.approx(1 / found.value)
    assert (swapped.low, swapped.high) == pytest.approx((1 / found.high, 1 / found.low))


def test_equal_processes_have_no_width() -> None:
    """Processes that agree to the digit give a ratio without NaN."""
    samples = np.full(10, 1_000_000)
    rate = throughput([a_repeat(samples)] * 2, [samples] * 2)
    found = ratio(rate, rate)
    assert (found.low, found.value, found.high) == (1.0, 1.0, 1.0)
