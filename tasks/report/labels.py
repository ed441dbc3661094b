"""Words beside points, where neither points nor other words are."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Annotation
    from matplotlib.transforms import Bbox

GAPS = (9, 34, 59)  # points of the page between a point and its words


class Label(NamedTuple):
    """A point in the axes' units, and what to write beside it."""

    x: float
    y: float
    words: str
    colour: str


def name_points(figure: "Figure", axes: "Axes", labels: Sequence[Label], points: Sequence[tuple[float, float]]) -> None:
    """Write each label in the first place, from near to far, that lies inside and covers nothing.

    Where every place is taken, the first one is used. The axes' limits must be final.

    Args:
        points: (x, y) that no words may cover.
    """
    from matplotlib.transforms import Bbox

    figure.draw_without_rendering()  # settles the layout: before, nothing has a place
    taken = [Bbox.from_bounds(x - 5, y - 5, 10, 10) for x, y in map(axes.transData.transform, points)]
    for label in labels:
        hidden = []
        for text in _tries(axes, label):
            box = box_of(text)
            inside = axes.bbox.x0 <= box.x0 and box.x1 <= axes.bbox.x1 and axes.bbox.y0 <= box.y0 and box.y1 <= axes.bbox.y1
            if inside and not box.count_overlaps(taken):
                break
            hidden.append(text)
            text.set_visible(False)
        else:
            text = hidden[0]
            text.set_visible(True)
        taken.append(box_of(text))


def box_of(text: "Annotation") -> "Bbox":
    """Where the words are on the page, in pixels, without the line to their point."""
    from matplotlib.text import Text

    text.get_window_extent()  # puts the words in their place; its answer holds the line too
    return Text.get_window_extent(text)


def _tries(axes: "Axes", label: Label) -> Iterator["Annotation"]:
    for gap in GAPS:
        for above in (True, False):
            for aligned, shift in (("left", -4), ("right", 4), ("center", 0)):
                yield axes.annotate(
                    label.words,
                    (label.x, label.y),
                    xytext=(shift, gap if above else -gap),
                    textcoords="offset points",
                    ha=aligned,
                    va="bottom" if above else "top",
                    fontsize=9,
                    color=label.colour,
                    bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.5},  # readable across lines
                    arrowprops={"arrowstyle": "-", "color": label.colour, "linewidth": 0.6} if gap > GAPS[0] else None,
                )
