"""The card, the markdown and the plots tell the same, and survive whatever a record holds."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from tasks.decide import decide
from tasks.facts import Approval, Record, Unmeasured
from tasks.report.card import show_card
from tasks.report.markdown import markdown
from tasks.report.notes import cells_in_words, measured_on, prices, reasons
from tasks.report.plots import plots
from tasks.report.rows import bills, focus, rows
from tasks.store import Store
from tests.builders import a_cell
from tests.fabricated import BASELINE, INT8, ONE_CORE, TWO_CORES, WHEN, a_record, a_request, costs_of, evidence


@pytest.fixture
def store(tmp_path) -> Store:
    return Store(tmp_path)


def printed(record: Record, store: Store, **how) -> str:
    out = io.StringIO()
    show_card(record, store, Console(**({"file": out, "width": 100} | how)))
    return out.getvalue()


def record_of(store: Store, outcomes, **request) -> Record:
    """A record of a decision on these outcomes, the first of them the baseline's."""
    asked = a_request([outcome.cell for outcome in outcomes[1:]], **request)
    costs = costs_of(asked, outcomes)
    decision = decide(asked, outcomes, costs, {}, store)
    return a_record(store, request=asked, outcomes=tuple(outcomes), costs=tuple(costs), decision=decision)


def test_the_card_puts_the_verdict_first(store):
    """The verdict and the summary come before the checks, the cost, the cells and the paths."""
    text = printed(a_record(store), store)
    places = [
        text.index(words)
        for words in (
            "PROPOSE",
            "Move digits-cnn",
            "Checks of ort/int8-static-conv@cpu-1core",
            "Cost of",
            "All cells",
            "Why not",
            "Where to",
        )
    ]
    assert places == sorted(places)
    assert 'crossgrade approve 20261130-114500-digits-cnn-1f3a9c --as "YOUR NAME"' in text
    assert "experiment crossgrade/digits-cnn, run 20261130-114500-digits-cnn-1f3a9c" in text


def test_the_card_fits_and_needs_no_colour(store):
    """No line is longer than the terminal, on a wide one than 100 columns, and without a terminal there is no escape sequence."""
    for width in (80, 100, 140):
        text = printed(a_record(store), store, width=width)
        assert max(map(len, text.splitlines())) <= min(width, 100)
        assert "\x1b" not in text
    assert "\x1b[" in printed(a_record(store), store, force_terminal=True, color_system="standard")


def test_every_cell_has_its_state(store):
    """Recommended, inaccurate, slower, unmeasured and simulated are told apart in all three reports."""
    record = a_record(store)
    states = {row.cell: row.state for row in rows(record, store)}
    assert states == {
        "ort/fp32@cpu-2core": "baseline",
        "ort/int8-static-conv@cpu-1core": "recommended",
        "ort/int8-dynamic@cpu-1core": "inaccurate",
        "ort/int8-static@cpu-1core": "slower",
        "openvino/int8-nncf@cpu-1core": "unmeasured",
        "simulated/int8-static@sim-l4": "simulated",
    }
    for state in states.values():
        assert state in printed(record, store)
        assert state in markdown(record, store)


def test_a_narrow_card_breaks_names_before_their_target(store):
    """A name that does not fit goes on in the next line, whole in both parts."""
    long = a_cell("openvino", "int8-nncf", ONE_CORE.model_copy(update={"name": "cpu-1core-in-frankfurt"}))
    record = record_of(store, [evidence(store, BASELINE, 2.1), evidence(store, INT8, 0.6), evidence(store, long, 0.9)])
    matrix = printed(record, store, width=80).partition("All cells")[2].splitlines()
    place = next(number for number, line in enumerate(matrix) if line.strip() == "openvino/int8-nncf")
    assert matrix[place + 1].split()[0] == "@cpu-1core-in-frankfurt"


def test_equal_reasons_are_told_once(store):
    """What one engine does on two targets and in two runtimes is one line, though its figures differ a little; another recipe's is not."""
    cells = [a_cell(backend, "int8-dynamic", target) for backend in ("ort", "openvino") for target in (ONE_CORE, TWO_CORES)]
    wrong = [evidence(store, cell, 0.5, right, mode="screen") for cell, right in zip(cells, (400, 400, 400, 404), strict=True)]
    other = evidence(store, a_cell(recipe="int8-static", target=ONE_CORE), 0.5, 2000, mode="screen")
    record = record_of(store, [evidence(store, BASELINE, 2.1), evidence(store, INT8, 0.6), *wrong, other])
    found = dict(reasons(record, rows(record, store)))
    assert list(found) == ["int8-dynamic (openvino, ort on cpu-1core, cpu-2core)", "ort/int8-static@cpu-1core"]
    assert found["int8-dynamic (openvino, ort on cpu-1core, cpu-2core)"].endswith("margin 1 point (figures of the first)")
    for text in (printed(record, store), markdown(record, store)):
        assert text.count("refused on accuracy") == 2


def test_cells_are_named_together_only_where_all_are_meant():
    """A recipe that failed on one target of one runtime does not stand for all four."""
    some = [a_cell("ort", "int8-static", ONE_CORE), a_cell("ort", "int8-static", TWO_CORES), a_cell("openvino", "int8-static", ONE_CORE)]
    assert cells_in_words(some) == "int8-static (openvino on cpu-1core; ort on cpu-1core, cpu-2core)"
    assert cells_in_words([*some[:1], a_cell("ort", "int8-dynamic", ONE_CORE)]) == "int8-dynamic, int8-static (ort on cpu-1core)"
    assert cells_in_words(some[:1]) == "ort/int8-static@cpu-1core"


def test_a_price_has_its_date_and_a_number_its_machine(store):
    """Both reports say what an hour costs, as of when, by which source, and on what the cells were measured."""
    record = a_record(store)
    (price,) = prices(record)
    assert price == "c7a.large $0.10264/h, c7a.medium $0.05132/h: aws us-east-1, on demand, as of 2026-07-20, source: a price list"
    assert measured_on(record).startswith("Measured on AMD EPYC 9R14, 2 cores; priced as aws us-east-1 c7a.large, c7a.medium: ")
    for text in (printed(record, store), markdown(record, store)):
        words = " ".join(text.split())
        assert price in words
        assert measured_on(record) in words


def test_an_unmeasured_cell_shows_no_zero(store):
    """Unknown is empty, never 0 ms or $0."""
    line = next(line for line in printed(a_record(store), store).splitlines() if "openvino/int8-nncf@cpu-1core" in line)
    assert "0 ms" not in line
    assert "$" not in line


def test_the_bill_adds_up_as_shown(store):
    """The printed parts sum to the printed total."""
    told = bills(a_record(store))
    for side in ("before", "after"):
        amounts = {bill.part: getattr(bill, side).usd_per_million for bill in told}
        assert amounts.pop("total") == sum(amounts.values())


@pytest.mark.parametrize("answer", ["approve", "reject"])
def test_a_word_is_shown(store, answer):
    """Who answered, when, how and with which comment."""
    record = a_record(store)
    word = Approval(decision=record.decision.digest, answer=answer, approver="Ada Lovelace", comment="ship it", at=WHEN, via="prefect")
    record = record.model_copy(update={"approvals": (word,)})
    for text in (printed(record, store), markdown(record, store)):
        assert "Ada Lovelace" in text
        assert "ship it" in text
    assert ("APPROVED" if answer == "approve" else "REJECTED") in printed(record, store)


def test_an_inconclusive_decision_says_what_is_missing(store):
    """The list of what is missing stands in both reports."""
    record = record_of(store, [evidence(store, BASELINE, 2.1), evidence(store, INT8, 0.6, samples=100)])
    for text in (printed(record, store), markdown(record, store)):
        assert "INCONCLUSIVE" in text
        assert "162 more samples" in text


def test_hostile_text_stays_text(store):
    """Markup of the terminal, HTML and a table's column in a reason are shown, not obeyed."""
    reason = "[/red][bold] a|b <script>alert(1)</script> `x`\n# not a title"
    lost = Unmeasured(cell=a_cell("openvino", target=ONE_CORE), stage="build", reason=reason)
    record = record_of(store, [evidence(store, BASELINE, 2.1), evidence(store, INT8, 0.6), lost])
    assert "[/red][bold] a|b <script>" in printed(record, store)
    text = markdown(record, store)
    assert "<script>" not in text
    row, why = (line for line in text.splitlines() if "openvino/fp32" in line)
    assert row.count("|") == 7
    assert why.count("|") == why.count("\\|") == 1
    assert "\n# not" not in text


def test_reports_survive_missing_numbers(store):
    """No baseline, no candidates measured, no objects in the store: all reports still speak."""
    lost = [Unmeasured(cell=cell, stage="measure", reason="hung") for cell in (BASELINE, INT8)]
    nothing = record_of(store, lost)
    elsewhere = Store(store.root / "another")
    for record, where in ((nothing, store), (a_record(store), elsewhere)):
        assert record.model.id in printed(record, where)
        assert "## All cells" in markdown(record, where)
        plots(record, where)
    assert focus(nothing) is None
    assert plots(nothing, store) == {}


def test_images_and_links_are_embedded(store):
    """A Prefect artifact holds its plots itself and leads to MLflow."""
    text = markdown(a_record(store), store, {"cost": b"\x89PNG"}, {"MLflow run": "http://127.0.0.1:5000/#/x"})
    assert "![cost](data:image/png;base64,iVBORw==)" in text
    assert "[MLflow run](http://127.0.0.1:5000/#/x)" in text


def test_the_golden_record_has_a_card(store):
    """A record from another machine is shown with what it holds itself."""
    from tasks.schema import load

    record = load((Path(__file__).parent / "golden" / "record.v1.json").read_bytes(), "golden")
    assert "APPROVED" in printed(record, store)
