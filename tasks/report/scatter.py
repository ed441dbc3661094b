"""Accuracy against cost: which cells are on the Pareto front, and which lie beyond the margin.

The y axis is the difference from the baseline on the same samples, so that cells screened on development data and cells judged on
evaluation data may share it.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from tasks.facts import Record
from tasks.report.canvas import GREY, PALETTE, figure_of, finish, plain_log_ticks, saved
from tasks.report.labels import Label, name_points
from tasks.report.rows import Row
from tasks.units import margin_in_words, usd

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = {"baseline": PALETTE[0], "recommended": PALETTE[1], "passes, dearer": PALETTE[2], "held": PALETTE[3], "undecided": PALETTE[4]}
ROOM = 4  # margins below the baseline that the plot shows; what is worse sits on its edge


class Point(NamedTuple):
    """A cell with a price and a score; `apart` is its difference from the baseline, in points of a hundred or the metric's own unit."""

    row: Row
    usd: float
    low: float
    high: float
    apart: float


def accuracy_against_cost(record: Record, told: Sequence[Row]) -> bytes | None:
    """Every cell with a price and a score; those far below the margin sit on the lower edge. None without the baseline's."""
    metric = record.model.metric
    scale = 1 if metric.transform == "exp" else 100
    points = [point for row in told if (point := _point(row, scale))]
    baseline = next((point.row for point in points if point.row.state == "baseline"), None)
    if baseline is None:
        return None
    margin = record.request.policy.margin_for(metric)
    allowed = scale * margin.value * (abs(baseline.accuracy or 0) if margin.unit == "relative" else 1)
    worse = -1 if metric.higher_is_better else 1
    edge = worse * ROOM * allowed
    figure = figure_of(8, 5.2)
    axes = figure.add_subplot()
    axes.set_xscale("log")
    _levels(axes, worse * allowed, margin_in_words(margin, metric))
    _front(axes, points, worse)
    shown = [point._replace(apart=min(point.apart * worse, edge * worse) * worse) for point in points]
    for point in shown:
        _draw(axes, point, record, edge, scale)
    best = max(-worse * point.apart for point in points)
    axes.set_ylim(*sorted((edge + worse * 0.4 * allowed, -worse * (best + 2.2 * allowed))))
    axes.set_xlim(min(point.usd for point in points) / 1.6, max(point.usd for point in points) * 1.6)
    unit = "" if metric.transform == "exp" else " (points)"
    axes.set(xlabel="USD per million inferences (log scale)", ylabel=f"{metric.name} against the baseline, same samples{unit}")
    _legend(axes, worse)
    plain_log_ticks(axes)
    named = [point for point in shown if point.row.state in COLOURS and point.apart != edge]
    finish(figure, axes, f"Accuracy against cost of {record.model.id}")
    name_points(figure, axes, [_label(point) for point in named], [(point.usd, point.apart) for point in shown])
    return saved(figure)


def _point(row: Row, scale: float) -> Point | None:
    if row.cost is None or row.apart is None or row.cost.usd_per_million <= 0:
        return None
    return Point(row, float(row.cost.usd_per_million), float(row.cost.low), float(row.cost.high), scale * row.apart)


def _label(point: Point) -> Label:
    return Label(point.usd, point.apart, f"{point.row.cell}\n{point.row.state}, {usd(point.usd)}", COLOURS[point.row.state])


def _levels(axes: "Axes", margin: float, words: str) -> None:
    axes.axhline(0, color=COLOURS["baseline"], linewidth=0.8, alpha=0.6)
    axes.axhline(margin, color="black", linestyle="--", linewidth=1)
    axes.annotate(f"margin: {words}", (0.995, margin), xycoords=("axes fraction", "data"), ha="right", va="bottom", fontsize=9)


def _front(axes: "Axes", points: Sequence[Point], worse: int) -> None:
    """Cells that no other real cell beats in both: a step from the cheapest up."""
    real = sorted((point for point in points if point.row.state != "simulated"), key=lambda point: (point.usd, point.apart * worse))
    front: list[Point] = []
    for point in real:
        if not front or (point.apart - front[-1].apart) * worse < 0:
            front.append(point)
    xs, ys = [point.usd for point in front], [point.apart for point in front]
    axes.step(xs, ys, where="post", color=GREY, linewidth=1, alpha=0.6, label="Pareto front")


def _draw(axes: "Axes", point: Point, record: Record, edge: float, scale: float) -> None:
    """A point with the bounds of its cost and, where it was judged, of its accuracy; a simulated one has neither."""
    simulated = point.row.state == "simulated"
    if point.apart == edge:
        axes.plot(point.usd, edge, marker="v" if edge < 0 else "^", color=GREY, markersize=7, linestyle="none")
        return
    marker = "D" if simulated else "o" if point.row.judged else "s"
    axes.errorbar(
        point.usd,
        point.apart,
        xerr=None if simulated else [[point.usd - point.low], [point.high - point.usd]],
        yerr=None if simulated else _spread(point.row, record, scale),
        fmt=marker,
        color=COLOURS.get(point.row.state, GREY),
        markerfacecolor="none" if simulated else None,
        markersize=7,
        capsize=2,
        linewidth=1,
        zorder=4 if point.row.judged and not simulated else 3,
    )


def _legend(axes: "Axes", worse: int) -> None:
    """What the shapes mean."""
    shapes = {"judged on evaluation data": "o", "screened on development data": "s", "simulated, no evidence": "D"}
    shapes[f"worse than {ROOM} margins"] = "v" if worse < 0 else "^"
    for words, marker in shapes.items():
        axes.plot([], [], linestyle="none", marker=marker, color=GREY, label=words, markerfacecolor="none" if marker == "D" else None)
    axes.errorbar([], [], xerr=[], yerr=[], color=GREY, linewidth=1, capsize=2, linestyle="none", label="bounds of cost and accuracy")


def _spread(row: Row, record: Record, scale: float) -> list[list[float]] | None:
    """Bounds of the paired difference from the baseline, where the cell was judged."""
    finding = next((finding for finding in record.decision.findings if finding.cell == row.cell), None)
    check = next((check for check in finding.checks if check.name == "accuracy"), None) if finding else None
    if check is None or check.observed is None or check.low is None or check.high is None:
        return None
    return [[scale * max(check.observed - check.low, 0)], [scale * max(check.high - check.observed, 0)]]
