"""A record is written once, shows when it was edited, and takes a person's word only on the decision it holds."""

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from tasks.errors import BadArtifact, BadRequest, Stale
from tasks.facts import Approval, Record
from tasks.record import append, folder, new, read, records, stale, write
from tasks.store import Store
from tests.fabricated import WHEN, a_quote, a_record

TODAY = date(2026, 12, 1)


@pytest.fixture
def store(tmp_path) -> Store:
    return Store(tmp_path)


def a_word(record: Record, answer: str = "approve", **changes) -> Approval:
    values = {"decision": record.decision.digest, "answer": answer, "approver": "Ada Lovelace", "at": datetime.now(UTC)}
    return Approval(**(values | changes))


def file_of(record: Record, store: Store) -> Path:
    return folder(record.id, store) / "record.json"


def test_a_record_comes_back_as_it_was(store):
    """By id, by file and as the latest: the same facts, money to the last digit."""
    record = a_record(store)
    assert write(record, store) == record
    path = file_of(record, store)
    assert read(record.id, store) == read(path, store) == read(str(path), store) == read("latest", store) == record
    assert write(record, store) == record


def test_a_record_is_never_overwritten(store):
    """Another record under the same id is refused."""
    record = a_record(store)
    write(record, store)
    with pytest.raises(BadRequest, match="exists and is another one"):
        write(record.model_copy(update={"created": WHEN + timedelta(days=1)}), store)
    assert read(record.id, store) == record


def test_a_run_made_again_keeps_the_words_given_since(store):
    """A crash after the record was written: the next attempt finds it, approved meanwhile, and takes nothing back."""
    record = a_record(store)
    write(record, store)
    approved = append(record.id, a_word(record), store)
    assert write(record.model_copy(update={"supersedes": "20261101-another"}), store) == approved == read(record.id, store)


def test_an_edited_record_is_refused(store):
    """One changed digit is enough."""
    path = file_of(write(a_record(store), store), store)
    path.write_text(path.read_text().replace('"per_hour": "0.05132"', '"per_hour": "0.05131"'))
    with pytest.raises(BadArtifact, match="edited by hand"):
        read(path, store)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", "not json", '{"version": 1}', '{"version": "1", "sha256": "", "record": {}}', "[" * 5000, "\x00"]
)
def test_what_is_no_record_is_said_so(store, tmp_path, text):
    """Anything else in its place ends as BadArtifact."""
    (tmp_path / "some.json").write_text(text)
    with pytest.raises(BadArtifact, match=r"some.json is not a record file"):
        read(tmp_path / "some.json", store)


@pytest.mark.parametrize("wrong", ["../../etc/passwd", "/etc/passwd", "..", "a/b", "", "A", "x\n", "a" * 65])
def test_no_id_leads_out_of_the_store(store, wrong):
    """An id with a path in it is refused before a file or a lock is touched."""
    with pytest.raises(BadRequest, match="is not a record's id"):
        folder(wrong, store)
    with pytest.raises(BadRequest, match="is not a record's id"):
        read(wrong, store)
    with pytest.raises(BadRequest, match="is not a record's id"):
        append(wrong, a_word(a_record(store)), store)


def test_a_missing_record_says_so(store):
    """Neither an unknown id nor an empty store is a traceback."""
    with pytest.raises(BadRequest, match="no record 20260101"):
        read("20260101-000000-x-000000", store)
    with pytest.raises(BadRequest, match="there are no records"):
        read("latest", store)
    for name in ("x\x00.json", "\ud800.json", Path("x\x00"), "y" * 5000 + ".json"):
        with pytest.raises(BadRequest, match="no record"):
            read(name, store)


def test_records_are_listed_newest_first_without_the_broken(store, caplog):
    """A broken record is named in the log and hides no other."""
    old, new = a_record(store, "20261101-a"), a_record(store, "20261102-b", created=WHEN + timedelta(days=1))
    for record in (old, new):
        write(record, store)
    broken = file_of(write(a_record(store, "20261103-c"), store), store)
    broken.write_text("{}")
    assert [record.id for record in records(store)] == ["20261102-b", "20261101-a"]
    assert "20261103-c" in caplog.text


def test_the_same_decision_recorded_twice_is_one_record(store):
    """A run that crashed after writing finishes by writing the same; the next migration names what it replaces."""
    made = a_record(store)
    facts = (made.model, made.request, made.outcomes, made.costs, made.decision, store)
    assert write(new(*facts, WHEN), store) == write(new(*facts, WHEN), store)
    assert new(*facts, WHEN + timedelta(days=1)).supersedes == records(store)[0].id == new(*facts, WHEN).id


def test_approve_then_reopen(store):
    """The status follows the last word, and the file keeps them all."""
    record = a_record(store)
    write(record, store)
    assert append(record.id, a_word(record), store).status == "approved"
    assert append(record.id, a_word(record, "reopen", comment="slower since onnxruntime 1.32"), store).status == "reopened"
    assert [word.answer for word in read(record.id, store).approvals] == ["approve", "reopen"]
    with pytest.raises(BadRequest, match="was reopened: slower"):
        append(record.id, a_word(record), store)


def test_what_was_reopened_is_never_approved_again(store):
    """Not by a detour through a rejection either."""
    record = a_record(store)
    write(record, store)
    for answer in ("approve", "reopen", "reject"):
        append(record.id, a_word(record, answer, comment="a slower night"), store)
    with pytest.raises(BadRequest, match="was reopened: a slower night"):
        append(record.id, a_word(record), store)
    assert read(record.id, store).status == "rejected"


def test_one_approval_is_enough(store):
    """A second person is told who was first."""
    record = a_record(store)
    write(record, store)
    append(record.id, a_word(record), store)
    with pytest.raises(BadRequest, match="was approved by Ada Lovelace already"):
        append(record.id, a_word(record, approver="Ben Okoro"), store)


def test_evidence_edited_with_a_right_sha256_is_not_approved(store):
    """Whoever edits a file can compute its sha256 again; the decision still names the evidence it was made from."""
    record = a_record(store)
    cheap = record.costs[1].model_copy(update={"quote": record.costs[1].quote.model_copy(update={"per_hour": Decimal("0.001")})})
    wrong = {
        "costs": {"costs": (record.costs[0], cheap, *record.costs[2:])},
        "outcomes": {"outcomes": record.outcomes[:-1]},
        "request": {"request": record.request.model_copy(update={"slo": record.request.slo.model_copy(update={"latency_ms": 1.0})})},
        "model": {"model": record.model.model_copy(update={"license": "MIT"})},
    }
    for name, changes in wrong.items():
        forged = write(record.model_copy(update={**changes, "id": f"forged-{name}"}), store)
        with pytest.raises(BadArtifact, match="does not hold the evidence it was decided on"):
            append(forged.id, a_word(forged), store)
        assert append(forged.id, a_word(forged, "reject"), store).status == "rejected"


def test_evidence_from_the_future_is_stale(store):
    """A clock that was wrong must not keep evidence fresh for years; a day is allowed for time zones."""
    record = write(a_record(store), store)
    assert stale(record, store, (WHEN - timedelta(days=1)).date()) == []
    assert "was measured 3 days in the future" in stale(record, store, (WHEN - timedelta(days=3)).date())[0]


def test_the_same_word_twice_counts_once(store):
    """A flow that resumes from the top may say it again."""
    record = a_record(store)
    write(record, store)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: append(record.id, a_word(record), store), range(8)))
    assert len(read(record.id, store).approvals) == 1


def test_a_word_on_another_decision_is_stale(store):
    """What was shown must be what is approved."""
    record = a_record(store)
    write(record, store)
    with pytest.raises(Stale, match="is not the one in record"):
        append(record.id, a_word(record, decision="0" * 64), store)
    assert read(record.id, store).approvals == ()


def test_only_a_proposal_can_be_approved(store):
    """A held one can be rejected but not approved; what is not approved cannot be reopened."""
    record = a_record(store)
    held = record.model_copy(update={"decision": record.decision.model_copy(update={"verdict": "hold"})})
    write(held, store)
    with pytest.raises(BadRequest, match="only a proposal can be approved"):
        append(held.id, a_word(held), store)
    with pytest.raises(BadRequest, match="not approved"):
        append(held.id, a_word(held, "reopen"), store)
    assert append(held.id, a_word(held, "reject"), store).status == "rejected"


def test_a_forged_proposal_of_a_simulated_cell_cannot_be_approved(store):
    """Even a record whose decision recommends it: a simulated or screened cell is never approved."""
    record = a_record(store)
    for name in ("simulated/int8-static@sim-l4", "ort/int8-dynamic@cpu-1core"):
        cell = next(outcome.cell for outcome in record.outcomes if outcome.cell.name == name)
        decision = record.decision.model_copy(update={"recommended": cell.name, "recommended_digest": cell.digest})
        forged = record.model_copy(update={"decision": decision, "id": f"forged-{cell.backend}"})
        write(forged, store)
        with pytest.raises(BadRequest, match="not measured in valid mode on a real device"):
            append(forged.id, a_word(forged), store)


def test_a_fresh_record_is_not_stale(store):
    """The day after, nothing has changed."""
    record = a_record(store)
    write(record, store)
    assert stale(record, store, TODAY, [a_quote("c7a.medium"), a_quote("c7a.large")]) == []


def test_what_makes_a_record_stale(store):
    """Age of evidence and prices, a newer record, a new price and lost objects are each named."""
    record = a_record(store)
    write(record, store)
    dearer = a_quote("c7a.medium").model_copy(update={"per_hour": Decimal("0.06"), "as_of": date(2026, 11, 29)})
    assert stale(record, store, TODAY, [dearer]) == ["c7a.medium costs $0.06/h since 2026-11-29, the record says $0.05132/h"]
    same_day = a_quote("c7a.medium").model_copy(update={"per_hour": Decimal("0.07")})
    assert "c7a.medium costs $0.07/h since 2026-07-20" in stale(record, store, TODAY, [a_quote("c7a.medium"), same_day])[0]
    assert "was measured 41 days ago, the policy allows 30" in stale(record, store, date(2027, 1, 10))[0]
    assert any("the price of c7a.large is 530 days old" in reason for reason in stale(record, store, date(2028, 1, 1)))
    write(a_record(store, "20261201-newer", created=WHEN + timedelta(hours=3)), store)
    assert stale(record, store, TODAY)[0].startswith("record 20261201-newer answers the same question")
    engine = record.outcomes[1].engine.sha256
    (store.root / "objects" / engine[:2] / engine).write_bytes(b"changed")
    assert "the engine of ort/int8-static-conv@cpu-1core is missing or was changed" in stale(record, store, TODAY)


def test_a_record_in_anothers_folder_is_refused(store):
    """A copied file does not become another record."""
    record = a_record(store)
    path = file_of(write(record, store), store)
    other = folder("20260101-other", store)
    other.mkdir()
    (other / "record.json").write_bytes(path.read_bytes())
    with pytest.raises(BadArtifact, match="holds record"):
        read("20260101-other", store)
    assert json.loads(path.read_bytes())["version"] == 1
