"""The pictures of a record as PNG bytes: latency, samples over time, accuracy against cost, cost before and after."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tasks.facts import Evidence, Record
from tasks.report.canvas import GREY, PALETTE, figure_of, plain_log_ticks, png, saved
from tasks.report.notes import compared_costs
from tasks.report.rows import Row, bills, focus, rows
from tasks.report.scatter import accuracy_against_cost
from tasks.store import Store, write_atomically
from tasks.units import ms, usd

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_POINTS = 4000  # in one panel: more only makes the file larger
PARTS = (*PALETTE[5:1:-1], *PALETTE[:2])  # of a cost: not the colours that mean baseline and recommended
MOST_CELLS = 6  # in one panel of lines: more cannot be told apart


def plots(record: Record, store: Store) -> dict[str, bytes]:
    """File name -> PNG; a plot whose numbers are unknown is left out."""
    told = [row for row in rows(record, store) if row.p50_ms is not None]
    drawn = {
        "latency.png": latency(record, told, store),
        "samples.png": samples(record, told, store),
        "accuracy-cost.png": accuracy_against_cost(record, told),
        "cost.png": cost_before_after(record),
    }
    return {name: image for name, image in drawn.items() if image}


def plot_files(record: Record, store: Store) -> list[Path]:
    """The plots beside the record, drawn once."""
    folder = store.root / "records" / record.id
    if not (found := sorted(folder.glob("*.png"))):
        for name, image in plots(record, store).items():
            write_atomically(folder / name, image)
        found = sorted(folder.glob("*.png"))
    return found


def latency(record: Record, told: Sequence[Row], store: Store) -> bytes | None:
    """Share of requests that are done within a time, of the baseline and of what was measured beside it; dashed where simulated."""
    shown = _valid(told)[:MOST_CELLS]
    if not shown:
        return None
    figure = figure_of(8, 4.5)
    axes = figure.add_subplot()
    for row, colour in zip(shown, PALETTE, strict=False):
        ordered_ms = np.sort(_latencies_ms(row, store))
        shares = np.arange(1, ordered_ms.size + 1) / ordered_ms.size
        style = "--" if row.state == "simulated" else "-"
        axes.step(ordered_ms, shares, where="post", color=colour, label=_label(row), linewidth=1.8, linestyle=style)
    axes.set_xscale("log")
    _limit(axes, record.request.slo.latency_ms)
    share = record.request.slo.percentile / 100
    axes.axhline(share, color=GREY, linestyle=":", linewidth=1)
    axes.set(xlabel="latency, host to host, ms (log scale)", ylabel="share of requests", ylim=(0, 1.02))
    axes.annotate(f"p{record.request.slo.percentile}", (0.005, share), xycoords=("axes fraction", "data"), va="top", color=GREY, fontsize=9)
    plain_log_ticks(axes)
    return png(figure, axes, f"Latency of {record.model.id}", columns=1)


def samples(record: Record, told: Sequence[Row], store: Store) -> bytes | None:
    """Latency in the order it was measured: a drift, a throttle or a disturbed repeat shows here and nowhere else."""
    shown = [row for row in _valid(told) if row.state != "simulated"][:3]
    if not shown:
        return None
    figure = figure_of(8, 1.2 + 1.7 * len(shown))
    panels = figure.subplots(len(shown), 1, squeeze=False)[:, 0]
    for axes, row, colour in zip(panels, shown, PALETTE, strict=False):
        _over_time(axes, row, store, colour)
        _limit_within(axes, record.request.slo.latency_ms)
    panels[-1].set_xlabel("seconds of sampling; dashed lines part fresh processes")
    figure.supylabel("latency, ms", fontsize=10)
    return saved(figure)


def cost_before_after(record: Record) -> bytes | None:
    """Cost per million in its parts, today and after the move."""
    told, candidate = bills(record), focus(record)
    if not told or candidate is None or told[-1].before is None or told[-1].after is None:
        return None
    figure = figure_of(8, 2.6)
    axes = figure.add_subplot()
    names = (f"today\n{record.request.baseline.name}", f"after\n{candidate.cell}")
    left = np.zeros(2)
    for bill, colour in zip(told[:-1], PARTS, strict=False):
        widths = np.array([float(part.usd_per_million) if part else 0.0 for part in (bill.before, bill.after)])
        if widths.any():
            axes.barh(names, widths, left=left, color=colour, label=bill.part, height=0.55)
        left += widths
    for name, total, words in zip(names, (told[-1].before, told[-1].after), ("", f" ({told[-1].change})"), strict=True):
        ends = [[float(total.usd_per_million - total.low)], [float(total.high - total.usd_per_million)]]
        axes.errorbar(float(total.usd_per_million), name, xerr=ends, color="black", capsize=3, linewidth=1)
        place = (float(total.high), name)
        axes.annotate(f"{usd(total.usd_per_million)}{words}", place, xytext=(6, 0), textcoords="offset points", va="center", fontsize=9)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.25 * float(max(told[-1].before.high, told[-1].after.high)))
    dates = " and ".join(f"{day:%Y-%m-%d}" for day in sorted({cost.quote.as_of for cost in compared_costs(record)}))
    axes.set_xlabel(f"USD per million inferences, bars: bounds; prices as of {dates}")
    return png(figure, axes, f"Cost of a million inferences of {record.model.id}")


def _valid(told: Sequence[Row]) -> list[Row]:
    """Measured in valid mode; the baseline first, then what was recommended."""
    return [row for row in told if isinstance(row.outcome, Evidence) and row.outcome.mode == "valid"]


def _latencies_ms(row: Row, store: Store) -> np.ndarray:
    repeats = row.outcome.timing.repeats if isinstance(row.outcome, Evidence) else ()
    return np.concatenate([store.array(repeat.samples) for repeat in repeats]) / 1e6


def _label(row: Row) -> str:
    tail = f", p99 at most {ms(row.p99_ms)}" if row.p99_ms else ""
    return f"{row.cell} ({row.state}), p50 {ms(row.p50_ms or 0)}{tail}"


def _limit(axes: "Axes", limit_ms: float) -> None:
    """The SLO as a line, or as a word at the edge where it lies so far off that a line would squeeze the curves."""
    low, high = axes.get_xlim()
    if low / 3 <= limit_ms <= high * 10:
        axes.axvline(limit_ms, color="black", linestyle="--", linewidth=1)
        axes.annotate(f" limit {limit_ms:g} ms", (limit_ms, 0.03), xycoords=("data", "axes fraction"), fontsize=9, ha="right", rotation=90)
    else:
        words = f"limit {limit_ms:g} ms ->" if limit_ms > high else f"<- limit {limit_ms:g} ms"
        axes.annotate(words, (1, 1.01), xycoords="axes fraction", ha="right", va="bottom", fontsize=9)


def _limit_within(axes: "Axes", limit_ms: float) -> None:
    """The SLO as a line where the panel reaches it."""
    if limit_ms < axes.get_ylim()[1]:
        axes.axhline(limit_ms, color="black", linestyle=":", linewidth=1)
        words = f"limit {limit_ms:g} ms"
        axes.annotate(words, (0.995, limit_ms), xycoords=("axes fraction", "data"), ha="right", va="bottom", fontsize=8)


def _over_time(axes: "Axes", row: Row, store: Store, colour: str) -> None:
    """One cell's panel: of many samples every n-th, but the slowest hundredth whole; what lies above the panel is counted."""
    repeats = row.outcome.timing.repeats if isinstance(row.outcome, Evidence) else ()
    everything = _latencies_ms(row, store)
    slow_ms, top_ms = np.quantile(everything, [0.99, 0.995]) * [1, 1.3]
    every = max(1, everything.size // MOST_POINTS)
    start = 0.0
    for repeat in repeats:
        latencies = store.array(repeat.samples) / 1e6
        seconds = start + np.cumsum(latencies) / 1e3
        shown = (np.arange(latencies.size) % every == 0) | (latencies >= slow_ms)
        axes.plot(seconds[shown], latencies[shown], ".", color=colour, markersize=2, alpha=0.6, rasterized=True)
        start = float(seconds[-1]) if seconds.size else start
        if repeat is not repeats[-1]:
            axes.axvline(start, color=GREY, linestyle="--", linewidth=0.8)
    axes.set_xlim(0, start)
    axes.set_ylim(0, float(top_ms))
    if above := int((everything > top_ms).sum()):
        words = f"^ {above} of {everything.size:,} above, up to {ms(float(everything.max()))}"
        backed = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1}
        axes.annotate(words, (0.005, 0.97), xycoords="axes fraction", va="top", fontsize=8, bbox=backed)
    axes.set_title(_label(row), fontsize=10, loc="left")
    axes.grid(alpha=0.3)
