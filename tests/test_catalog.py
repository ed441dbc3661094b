"""Requests from words: what is understood, and how what is not is refused."""

from datetime import date
from pathlib import Path

import pytest

from tasks import catalog
from tasks.catalog import Ask, plan
from tasks.errors import BadRequest, NoQuote
from tests.builders import tiny_entry

DAY = date(2026, 11, 30)


@pytest.fixture
def spec():
    return tiny_entry().spec


def test_a_plan_names_every_sensible_cell_once_and_leaves_the_baseline_out(spec):
    """The matrix is runtimes x recipes x targets, without what a recipe is not for and without the baseline."""
    request = plan(Ask(model=spec.id, recipes=("fp32", "int8-dynamic", "int8-nncf"), targets=("cpu-2core", "sim-t4")), spec, DAY)
    names = [cell.name for cell in request.candidates]
    assert len(names) == len(set(names))
    assert request.baseline.name not in names
    assert "openvino/int8-nncf@cpu-2core" in names
    assert "ort/int8-nncf@cpu-2core" not in names
    assert "simulated/fp32@sim-t4" in names


def test_equal_words_make_equal_requests(spec):
    """A request's digest depends on what was asked, so that the same command resumes the same attempt."""
    assert plan(Ask(model=spec.id), spec, DAY).digest == plan(Ask(model=spec.id), spec, DAY).digest


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ({"targets": ("cpu-2cores",)}, "did you mean 'cpu-2core'"),
        ({"recipes": ("int8-dynamc",)}, "did you mean 'int8-dynamic'"),
        ({"backends": ("tensorflow",)}, "no backend 'tensorflow'"),
        ({"policy": "lenient"}, "no policy 'lenient'"),
        ({"baseline": "ort-fp32"}, "write backend/recipe@target"),
        ({"baseline": "ort/fp32@gpu-9"}, "no target 'gpu-9'"),
        ({"targets": ()}, "no candidate is left"),
        ({"targets": ("cpu-2core",), "backends": ("ort",), "recipes": ("fp32",)}, "the only candidate is the baseline itself"),
        ({"changes": {"max_p99": 3}}, "cannot be changed beside a policy"),
        ({"changes": {"utilisation": 3}}, "utilisation"),
    ],
)
def test_what_makes_no_sense_is_refused_with_what_would(spec, words, says):
    """Each wrong word is one line: what, where, what would be right."""
    with pytest.raises(BadRequest) as caught:
        plan(Ask(model=spec.id, **words), spec, DAY)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_target_without_a_price_is_refused_before_anything_is_measured(spec, tmp_path, monkeypatch):
    """A missing price is an error with the row to add, never 0."""
    rows = (catalog.DEPLOYMENTS / "prices.csv").read_text().splitlines()
    for name in ("targets.toml", "recipes.toml", "policies.toml"):
        (tmp_path / name).write_text((catalog.DEPLOYMENTS / name).read_text())
    (tmp_path / "prices.csv").write_text("\n".join(row for row in rows if "c7a.medium" not in row))
    monkeypatch.setattr(catalog, "DEPLOYMENTS", tmp_path)
    with pytest.raises(NoQuote, match="add a row for c7a.medium"):
        plan(Ask(model=spec.id), spec, DAY)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('model = "mnist-cnn"\ntarget = ["cpu-1core"]', "did you mean 'targets'"),
        ('model = "mnist-cnn"\n[slo]\nlatency_ms = 0', "slo.latency_ms"),
        ('model = "mnist-cnn"\n[slo]\npercentile = 98', "slo.percentile"),
        ("model = ", "is not TOML"),
        ('targets = ["cpu-1core"]', "field 'model' is missing"),
    ],
)
def test_a_request_file_with_a_fault_is_refused_by_field(tmp_path: Path, text, says):
    """The file, the field and the nearest right one."""
    path = tmp_path / "request.toml"
    path.write_text(text)
    with pytest.raises(BadRequest) as caught:
        catalog.read_ask(path)
    assert says in str(caught.value)
    assert "request.toml" in str(caught.value)


def test_a_request_file_that_is_not_there_is_named():
    """A wrong path is a sentence."""
    with pytest.raises(BadRequest, match="there is no file"):
        catalog.read_ask(Path("/nowhere/request.toml"))


def test_the_shipped_requests_can_be_planned():
    """What the README tells people to run is understood."""
    for path in (catalog.DEPLOYMENTS / "requests").glob("*.toml"):
        ask = catalog.read_ask(path)
        assert ask.model
