"""What all plots share: colours, a figure without global state, plain ticks, PNG bytes.

Figure objects are used directly, never pyplot, whose global state does not survive threads. Colours are Okabe and Ito's, which
colour-blind readers can tell apart.
"""

import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
GREY = "#7F7F7F"


def figure_of(width: float, height: float) -> "Figure":
    """An empty figure of so many inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def plain_log_ticks(axes: "Axes") -> None:
    """0.5 instead of 5 x 10^-1."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = axes.get_xlim()
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high / low < 100 else (1,)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())


def finish(figure: "Figure", axes: "Axes", title: str, columns: int = 3) -> None:
    """Title, grid and legend."""
    axes.set_title(title, loc="left", fontsize=11)
    axes.grid(alpha=0.3)
    axes.set_axisbelow(True)
    if axes.get_legend_handles_labels()[0]:
        figure.legend(loc="outside lower center", fontsize=8, frameon=False, ncols=columns)


def png(figure: "Figure", axes: "Axes", title: str, columns: int = 3) -> bytes:
    """Title, grid and legend, then PNG bytes."""
    finish(figure, axes, title, columns)
    return saved(figure)


def saved(figure: "Figure") -> bytes:
    """PNG bytes; the same figure gives the same bytes."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110, metadata={"Software": None})
    return buffer.getvalue()
