"""Numbers as people read them."""

import pytest

from tasks.facts import Margin, Metric
from tasks.units import change, interval, margin_in_words, ms, points, threads, usd

F1 = Metric(name="f1", unit="window")
PERPLEXITY = Metric(name="perplexity", unit="window", higher_is_better=False, transform="exp")


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0123, "12.3 us"), (0.52, "0.52 ms"), (50, "50.0 ms"), (1234.5, "1,234 ms")],
)
def test_latency_has_a_unit(value, text):
    """Microseconds below a tenth of a millisecond, never 1.23e-02."""
    assert ms(value) == text


@pytest.mark.parametrize(("value", "text"), [(0, "$0"), (0.000123, "$0.000123"), (0.0617, "$0.0617"), (4, "$4.00"), (28000, "$28,000.00")])
def test_dollars_keep_three_digits(value, text):
    """Small costs keep digits that mean something, large ones their cents."""
    assert usd(value) == text


def test_changes_of_a_metric_have_a_sign_and_a_unit():
    """Shares are points of a hundred; perplexity stays in its own unit; nothing is called -0."""
    assert points(-0.954, F1) == "-95.4 points"
    assert points(-0.00001, F1) == "0 points"
    assert points(0.12, PERPLEXITY) == "+0.12"
    assert interval(-0.0018, 0.0002, F1) == "-0.18 to +0.02 points"


@pytest.mark.parametrize(
    ("margin", "metric", "text"),
    [
        (Margin(value=0.01, unit="points"), F1, "1 point"),
        (Margin(value=0.005, unit="points"), F1, "0.5 points"),
        (Margin(value=0.02, unit="relative"), PERPLEXITY, "2% of the baseline"),
        (Margin(value=0.3, unit="points"), PERPLEXITY, "0.3"),
    ],
)
def test_a_margin_names_its_unit(margin, metric, text):
    """Points and per cent are never left to the reader."""
    assert margin_in_words(margin, metric) == text


def test_changes_and_counts():
    """Relative change in per cent; one thread is singular; a change from nothing is not a number."""
    assert change(0.2, 1.0) == "-80%"
    assert change(1.0, 0.0) == "n/a"
    assert (threads(1), threads(2)) == ("1 thread", "2 threads")
