"""Accuracy against cost: which cells are on the Pareto front, and which lie beyond the margin."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from tasks.facts import Record
from tasks.report.canvas import GREY, PALETTE, figure_of, plain_log_ticks, png
from tasks.report.rows import Row
from tasks.units import usd

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = {"baseline": PALETTE[0], "recommended": PALETTE[1], "passes, dearer": PALETTE[2], "held": PALETTE[3], "undecided": PALETTE[4]}
ROOM = 4  # margins below the baseline that the plot shows; what is worse sits on its edge


class Point(NamedTuple):
    """A cell with a price and a score; `accuracy` goes up for better, whatever the metric's direction."""

    row: Row
    usd: float
    low: float
    high: float
    accuracy: float


def accuracy_against_cost(record: Record, told: Sequence[Row]) -> bytes | None:
    """Every cell with a price and a score; those far below the margin sit on the lower edge. None without the baseline's."""
    points = [_point(row) for row in told if row.cost and row.accuracy is not None]
    points = [point for point in points if point.usd > 0]
    baseline = next((point for point in points if point.row.state == "baseline"), None)
    if baseline is None:
        return None
    metric = record.model.metric
    margin = record.request.policy.margin_for(metric)
    allowed = margin.value * (abs(baseline.accuracy) if margin.unit == "relative" else 1)
    worse = -1 if metric.higher_is_better else 1
    edge = baseline.accuracy + worse * ROOM * allowed
    figure = figure_of(8, 5.2)
    axes = figure.add_subplot()
    axes.set_xscale("log")
    _margin(axes, baseline.accuracy + worse * allowed)
    _front(axes, points, worse)
    for point in points:
        if (point.accuracy - edge) * worse > 0:
            axes.plot(point.usd, edge, marker="v" if worse < 0 else "^", color=GREY, markersize=7, linestyle="none")
        else:
            _draw(axes, point, record)
    best = max(point.accuracy * -worse for point in points) * -worse
    axes.set_ylim(*sorted((edge + worse * 0.4 * allowed, best - worse * 1.2 * allowed)))
    low, high = min(point.low for point in points), max(point.high for point in points)
    axes.set_xlim(low / 1.3, high * 1.3)
    axes.set(xlabel="USD per million inferences (log scale), with its interval", ylabel=metric.name)
    _name(axes, points, edge, worse)
    _legend(axes, worse)
    plain_log_ticks(axes)
    return png(figure, axes, f"Accuracy against cost of {record.model.id}")


def _point(row: Row) -> Point:
    cost = row.cost
    usd_per_million, low, high = (float(amount) for amount in ((cost.usd_per_million, cost.low, cost.high) if cost else (0, 0, 0)))
    return Point(row, usd_per_million, low, high, row.accuracy or 0.0)


def _margin(axes: "Axes", level: float) -> None:
    axes.axhline(level, color="black", linestyle="--", linewidth=1)
    axes.annotate("margin", (0.995, level), xycoords=("axes fraction", "data"), ha="right", va="bottom", fontsize=9)


def _front(axes: "Axes", points: Sequence[Point], worse: int) -> None:
    """Cells that no other real cell beats in both: a step from the cheapest up."""
    real = sorted((point for point in points if point.row.state != "simulated"), key=lambda point: (point.usd, point.accuracy * worse))
    front: list[Point] = []
    for point in real:
        if not front or (point.accuracy - front[-1].accuracy) * worse < 0:
            front.append(point)
    xs, ys = [point.usd for point in front], [point.accuracy for point in front]
    axes.step(xs, ys, where="post", color=GREY, linewidth=1, alpha=0.6, label="Pareto front")


def _draw(axes: "Axes", point: Point, record: Record) -> None:
    bars = [[point.usd - point.low], [point.high - point.usd]]
    colour = COLOURS.get(point.row.state, GREY)
    marker = "D" if point.row.state == "simulated" else "o" if point.row.judged else "s"
    spread = _spread(point.row, record)
    axes.errorbar(
        point.usd, point.accuracy, xerr=bars, yerr=spread, fmt=marker, color=colour, markersize=7, capsize=2, linewidth=1, zorder=3
    )


def _name(axes: "Axes", points: Sequence[Point], edge: float, worse: int) -> None:
    """Names of the cells that a decision is about, beside their points, on the side that has room."""
    left, right = axes.get_xlim()
    for point in points:
        if point.row.state not in COLOURS or (point.accuracy - edge) * worse > 0:
            continue
        leftish = point.usd < (left * right) ** 0.5
        above = point.row.state == "baseline"
        axes.annotate(
            f"{point.row.cell}\n{point.row.state}, {usd(point.usd)}",
            (point.usd, point.accuracy),
            xytext=(6 if leftish else -6, 8 if above else -10),
            textcoords="offset points",
            ha="left" if leftish else "right",
            va="bottom" if above else "top",
            fontsize=9,
            color=COLOURS[point.row.state],
        )


def _legend(axes: "Axes", worse: int) -> None:
    """What the shapes mean."""
    shapes = {"judged on evaluation data": "o", "screened on development data": "s", "simulated": "D"}
    shapes["beyond the plot"] = "v" if worse < 0 else "^"
    for words, marker in shapes.items():
        axes.plot([], [], linestyle="none", marker=marker, color=GREY, label=words)


def _spread(row: Row, record: Record) -> list[list[float]] | None:
    """Bounds of the paired difference from the baseline, where the cell was judged."""
    finding = next((finding for finding in record.decision.findings if finding.cell == row.cell), None)
    check = next((check for check in finding.checks if check.name == "accuracy"), None) if finding else None
    if check is None or check.observed is None or check.low is None or check.high is None:
        return None
    return [[max(check.observed - check.low, 0)], [max(check.high - check.observed, 0)]]
