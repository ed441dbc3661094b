"""Nightly: a regression is blamed on the build only when the baseline of the same night did not slow with it."""

import asyncio
from datetime import UTC, datetime

import pytest

from flows.migrate import in_this_process, migration
from flows.nightly import champions, night
from tasks import record as records
from tasks.catalog import Ask
from tasks.errors import BadRequest
from tasks.facts import Approval, Evidence, Record, Unmeasured
from tasks.regress import Pair, compare
from tasks.stats import Rate
from tasks.store import Store
from tests.fabricated import BASELINE, INT8, WHEN, a_record


def rate(value: float, error: float = 0.01) -> Rate:
    return Rate(value, value * 0.98, value * 1.02, 5, "test", error, 4)


THEN = Pair(rate(300), rate(1000))


@pytest.fixture
def record(tmp_path) -> Record:
    return a_record(Store(tmp_path))


def judged(record: Record, now: Pair | None, **decision: object):
    tonight = record.decision.model_copy(update=decision)
    outcomes = (record.outcome(BASELINE.digest), record.outcome(INT8.digest))
    return compare(record, outcomes, tonight, WHEN, THEN, now)


@pytest.mark.parametrize(
    ("now", "verdict"),
    [
        (Pair(rate(300), rate(1000)), "same"),
        (Pair(rate(300), rate(700)), "slower"),
        (Pair(rate(300), rate(1400)), "faster"),
        (Pair(rate(150), rate(500)), "same"),  # the host halved, both with it
        (Pair(rate(150), rate(300)), "slower"),
        (Pair(rate(300), rate(1000, error=0.3)), "ambiguous"),
        (None, "ambiguous"),
    ],
)
def test_only_the_champions_change_against_its_baseline_is_blamed(record, now, verdict):
    """What slows both is the host."""
    assert judged(record, now).verdict == verdict


def test_what_would_not_be_proposed_today_is_broken(record):
    """A gate that fails tonight re-opens the approval, whatever the speed."""
    assert judged(record, THEN, verdict="hold").verdict == "broken"


def test_a_night_that_decides_nothing_blames_nobody(record):
    """A noisy machine is no regression."""
    found = judged(record, THEN, verdict="inconclusive", missing=("measure again on a quiet machine",))
    assert found.verdict == "ambiguous"
    assert "quiet machine" in found.detail


def test_a_champion_that_cannot_run_is_broken_and_says_why(record):
    """A driver that no longer loads the engine."""
    gone = Unmeasured(cell=INT8, stage="measure", reason="killed by signal 11")
    found = compare(record, (record.outcome(BASELINE.digest), gone), record.decision, WHEN, THEN, None)
    assert found.verdict == "broken"
    assert "signal 11" in found.detail


def test_what_changed_between_the_nights_is_named(record):
    """Library, kernel and engine, old and new."""
    champion = record.outcome(INT8.digest)
    assert isinstance(champion, Evidence)
    host = champion.host.model_copy(update={"packages": {"onnxruntime": "1.32.0"}, "kernel": "6.2"})
    tonight = champion.model_copy(update={"host": host})
    found = compare(record, (record.outcome(BASELINE.digest), tonight), record.decision, WHEN, THEN, Pair(rate(300), rate(500)))
    assert "onnxruntime: 1.31.1 -> 1.32.0" in found.changes
    assert "kernel: 6.1 -> 6.2" in found.changes


@pytest.mark.slow
def test_a_real_night_measures_the_champion_again_and_follows_its_verdict(workplace):
    """Approved, measured again beside its baseline; re-opened when, and only when, the night says so."""
    store = Store(workplace / "home")
    ask = Ask(
        model="digits-cnn",
        baseline="torch-eager/fp32@cpu-2core",
        targets=("cpu-1core",),
        backends=("ort",),
        recipes=("fp32",),
        policy="quick",
    )
    made = asyncio.run(migration(ask, store, in_this_process))
    champion = made.request.candidates[0]
    # Whether this machine is quiet enough for a proposal is not what is tested here.
    decision = made.decision.model_copy(
        update={"verdict": "propose", "recommended": champion.name, "recommended_digest": champion.digest, "missing": ()}
    )
    approved = made.model_copy(update={"id": f"{made.id[:40]}-x", "decision": decision})
    records.write(approved, store)
    word = Approval(decision=decision.digest, answer="approve", approver="Ada", at=datetime.now(UTC))
    records.append(approved.id, word, store)
    (again,) = champions([], store)
    found = asyncio.run(night(again, store, in_this_process))
    status = records.read(approved.id, store).status
    assert status == ("reopened" if found.verdict in ("slower", "broken") else "approved")
    assert list((store.root / "nights" / approved.id).glob("*.json"))
    with pytest.raises(BadRequest, match="no approved migration of mnist-cnn"):
        champions(["mnist-cnn"], store)
