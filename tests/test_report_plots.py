"""The plots are pictures that tell cells apart and compare them fairly."""

import io
from itertools import combinations

import pytest
from PIL import Image

from tasks.facts import Metric
from tasks.report.canvas import figure_of
from tasks.report.labels import Label, box_of, name_points
from tasks.report.plots import plots
from tasks.report.rows import rows
from tasks.store import Store
from tests.builders import a_cell
from tests.fabricated import BASELINE, INT8, ONE_CORE, a_record, a_score, evidence


@pytest.fixture
def store(tmp_path) -> Store:
    return Store(tmp_path)


def test_accuracy_is_compared_on_the_same_samples(store):
    """A screened cell stands against the baseline's development score, a judged one against its evaluation score."""
    screened = evidence(store, a_cell(recipe="int8-static", target=ONE_CORE), 0.5, 3800, mode="screen")
    base, judged = evidence(store, BASELINE, 2.1), evidence(store, INT8, 0.6, 3896)
    base = base.model_copy(update={"development": a_score(store, base.engine, 990, 1000, "development")})
    apart = {row.cell: row.apart for row in rows(a_record(store, outcomes=(base, judged, screened)), store)}
    assert apart["ort/int8-static@cpu-1core"] == pytest.approx(0.95 - 0.99)
    assert apart[INT8.name] == pytest.approx(0.974 - 0.975)
    assert apart[BASELINE.name] == 0


def test_plots_are_pictures(store):
    """Four PNGs that a reader can open, none of them blank; the same record gives the same bytes."""
    record = a_record(store)
    drawn = plots(record, store)
    assert list(drawn) == ["latency.png", "samples.png", "accuracy-cost.png", "cost.png"]
    for png in drawn.values():
        picture = Image.open(io.BytesIO(png)).convert("L")
        assert picture.width >= 800
        assert picture.getextrema()[0] < 50
    assert plots(record, store)["cost.png"] == drawn["cost.png"]


def test_names_of_near_points_do_not_overlap():
    """Three points almost in one place: their names lie inside the plot, apart from each other and from the points."""
    figure = figure_of(8, 5)
    axes = figure.add_subplot()
    axes.set(xlim=(0, 1), ylim=(-4, 2))
    points = [(0.5, 0.0), (0.51, 0.0), (0.52, 0.02)]
    name_points(figure, axes, [Label(x, y, f"openvino/fp32@cpu-{place}core\nheld", "black") for place, (x, y) in enumerate(points)], points)
    boxes = [box_of(text) for text in axes.texts if text.get_visible()]
    assert len(boxes) == 3
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))
    assert all(axes.bbox.x0 <= box.x0 and box.x1 <= axes.bbox.x1 for box in boxes)
    assert not any(box.contains(*axes.transData.transform(point)) for box in boxes for point in points)


def test_plots_of_a_metric_where_lower_is_better(store):
    """The worse side is the upper one; nothing raises."""
    metric = Metric(name="perplexity", unit="window", higher_is_better=False, transform="exp")
    record = a_record(store)
    record = record.model_copy(update={"model": record.model.model_copy(update={"metric": metric})})
    assert "accuracy-cost.png" in plots(record, store)
