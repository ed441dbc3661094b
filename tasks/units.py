"""Numbers as people read them: units beside every number, three digits, no scientific notation."""

from decimal import Decimal

from tasks.facts import Margin, Metric


def ms(value: float) -> str:
    """Milliseconds, in microseconds below a tenth of one: '0.52 ms', '85 us'."""
    return f"{value * 1000:.3g} us" if value < 0.1 else f"{_three_digits(value)} ms"


def usd(value: Decimal | float) -> str:
    """Dollars with three digits that mean something, and at least the cents: '$0.0123', '$28,000.00'."""
    amount = float(value)
    if amount == 0:
        return "$0"
    decimals = 2
    while decimals < 6 and abs(amount) < 10 ** (2 - decimals):
        decimals += 1
    return f"${amount:,.{decimals}f}"


def points(change: float, metric: Metric) -> str:
    """A change of a metric with its sign: shares in points of a hundred, others in the metric's own unit."""
    return _bare(change, metric) + ("" if metric.transform == "exp" else " points")


def interval(low: float, high: float, metric: Metric) -> str:
    """'-0.18 to +0.02 points'."""
    return f"{_bare(low, metric)} to {points(high, metric)}"


def span(low: float, high: float, metric: Metric) -> str:
    """An interval whose unit was just said: '-0.18 to +0.02'."""
    return f"{_bare(low, metric)} to {_bare(high, metric)}"


def unchanged(change: float, metric: Metric) -> bool:
    """Too small a change to be shown."""
    return _bare(change, metric) == "0"


def level(value: float) -> str:
    """A metric's value, in columns that line up: '0.9782', '23.4'."""
    return f"{value:.4f}" if abs(value) < 10 else f"{value:,.1f}"


def threads(count: int) -> str:
    """'1 thread', '2 threads'."""
    return f"{count} thread" + ("" if count == 1 else "s")


def margin_in_words(margin: Margin, metric: Metric) -> str:
    """'1 point', '0.5 points', '2% of the baseline'."""
    if margin.unit == "relative":
        return f"{100 * margin.value:.3g}% of the baseline"
    if metric.transform == "exp":
        return f"{margin.value:.3g}"
    return f"{100 * margin.value:.3g} point" + ("" if margin.value == 0.01 else "s")


def change(new: float, old: float) -> str:
    """A relative change in whole percent: '-80%'."""
    return f"{100 * (new / old - 1):+.0f}%" if old else "n/a"


def _three_digits(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _bare(change: float, metric: Metric) -> str:
    scaled = change if metric.transform == "exp" else 100 * change
    return "0" if abs(scaled) < 0.005 else f"{scaled:+.2f}" if abs(scaled) < 10 else f"{scaled:+.1f}"
