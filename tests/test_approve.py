"""A person's word on a proposal, from the command line and through Prefect's suspended run."""

import asyncio
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from pydantic import ValidationError

from flows.approve import Answer, answer, approve
from tasks import record as records
from tasks.decide import decide
from tasks.errors import BadArtifact, BadRequest
from tasks.facts import Evidence, Record, evidence_digest
from tasks.store import Store
from tests.fabricated import WHEN, a_record


@pytest.fixture
def store(tmp_path, monkeypatch):
    """A home of its own, with no MLflow to tell."""
    monkeypatch.setenv("CROSSGRADE_HOME", str(tmp_path))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return Store(tmp_path)


def a_written(store: Store, **changes) -> Record:
    """A proposal in the store that does not grow old, whatever the day of the test."""
    made = a_record(store, **changes)
    policy = made.request.policy.model_copy(update={"max_evidence_age_days": 36_500, "max_price_age_days": 36_500})
    request = made.request.model_copy(update={"policy": policy})
    measured = min(WHEN, datetime.now(UTC))
    outcomes = tuple(one.model_copy(update={"measured": measured}) if isinstance(one, Evidence) else one for one in made.outcomes)
    decision = decide(request, outcomes, made.costs, {}, store)
    return records.write(made.model_copy(update={"request": request, "outcomes": outcomes, "decision": decision}), store)


def test_an_approval_is_written_with_who_and_how(store):
    """The record says who approved, why, when and through what."""
    made = a_written(store)
    done, stale = answer("latest", True, " Ana Silva ", "fits the budget", store, "cli", WHEN + timedelta(days=1))
    word = records.read(made.id, store).approvals[0]
    assert (done.status, stale) == ("approved", [])
    assert (word.answer, word.approver, word.comment, word.via) == ("approve", "Ana Silva", "fits the budget", "cli")
    assert word.decision == made.decision.digest


def test_stale_evidence_is_not_approved_but_may_be_rejected(store):
    """Forty days later the evidence is too old to approve; saying no needs no fresh evidence."""
    made, later = a_record(store), WHEN + timedelta(days=40)
    records.write(made, store)
    unchanged, reasons = answer(made.id, True, "Ana", "", store, "cli", later)
    assert unchanged.approvals == ()
    assert any("was measured 40 days ago" in reason for reason in reasons)
    assert answer(made.id, False, "Ana", "too old", store, "cli", later)[0].status == "rejected"


@pytest.mark.parametrize("name", ["", "x", "  y  ", "n" * 201])
def test_a_word_needs_a_name(store, name):
    """Who approved must be known: anything that is no name is refused with what would be right."""
    made = a_written(store)
    with pytest.raises(BadRequest, match="is not a name that a record can be signed with"):
        answer(made.id, True, name, "", store, "cli")
    assert records.read(made.id, store).approvals == ()


def test_what_is_held_cannot_be_approved(store):
    """Only a proposal can be approved, whoever asks."""
    made = a_record(store)
    held = made.model_copy(update={"decision": made.decision.model_copy(update={"verdict": "hold"})})
    records.write(held, store)
    with pytest.raises(BadRequest, match="only a proposal can be approved"):
        answer(held.id, True, "Ana", "", store, "cli", WHEN)


def test_what_was_shown_is_what_is_answered(store):
    """A copy of the record with another decision was shown: neither a yes nor a no goes into the store's own."""
    made = a_written(store)
    for yes in (True, False):
        kept, reasons = answer(made.id, yes, "Ana", "", store, "cli", shown="0" * 64)
        assert (kept.approvals, reasons) == ((), ["the decision shown is not the one in the record"])
    assert answer(made.id, True, "Ana", "", store, "cli", shown=made.decision.digest)[0].status == "approved"


def test_a_decision_that_does_not_follow_from_its_evidence_is_not_approved(store):
    """Edited with every digest computed again: another cell, other words, a limit that is not met, a cost that was never measured."""
    made = a_written(store)
    loser = next(one.cell for one in made.outcomes if one.cell.name == "ort/int8-dynamic@cpu-1core")
    swapped = made.decision.model_copy(update={"recommended": loser.name, "recommended_digest": loser.digest})
    strict = made.request.model_copy(update={"slo": made.request.slo.model_copy(update={"latency_ms": 0.01})})
    bound = made.decision.model_copy(update={"evidence": evidence_digest(strict, made.outcomes, made.costs)})
    words = made.decision.model_copy(update={"summary": "Move it: costs nothing."})
    dear = tuple(
        part.model_copy(update={"low": 9 * part.low, "usd_per_million": 9 * part.low, "high": 9 * part.high})
        for part in made.costs[0].parts
    )
    eager = made.request.model_copy(update={"policy": made.request.policy.model_copy(update={"min_saving": 0.93})})
    costs = (made.costs[0].model_copy(update={"parts": dear}), *made.costs[1:])
    untrue = {"request": eager, "costs": costs, "decision": decide(eager, made.outcomes, costs, {}, store)}
    assert untrue["decision"].verdict == "propose"
    for number, changes in enumerate(({"decision": swapped}, {"decision": words}, {"request": strict, "decision": bound}, untrue)):
        forged = records.write(made.model_copy(update={**changes, "id": f"2026-forged-{number}"}), store)
        with pytest.raises(BadArtifact, match="does not follow from its own evidence: it was edited"):
            answer(forged.id, True, "Mallory", "", store, "cli")
        assert records.read(forged.id, store).approvals == ()


def test_the_form_rejects_unless_told_otherwise():
    """The default answer is no, the name is required, and titles survive into the form."""
    shown = Answer.with_initial_data(description="## Approve?")
    form = shown.model_json_schema()["properties"]
    assert (form["decision"]["default"], form["decision"]["title"], form["reviewer"]["title"]) == ("reject", "Your decision", "Your name")
    with pytest.raises(ValidationError):
        shown(reviewer="x")


@pytest.fixture(scope="module")
def server():
    """A Prefect server of the tests' own, and a deployment of the approve flow that no worker serves."""
    from prefect.testing.utilities import prefect_test_harness

    with prefect_test_harness(server_startup_timeout=120):
        yield asyncio.run(_deployed())


async def _deployed():
    from prefect.client.orchestration import get_client

    async with get_client() as client:
        return await client.create_deployment(flow_id=await client.create_flow(approve), name="approve", enforce_parameter_schema=False)


class Run:
    """One run of the approve flow, taken through its states as a worker would."""

    def __init__(self, deployment_id, record: str) -> None:
        from prefect.client.orchestration import get_client

        self.client = get_client(sync_client=True)
        self.id = self.client.request(
            "POST", "/deployments/{id}/create_flow_run", path_params={"id": deployment_id}, json={"parameters": {"record": record}}
        ).json()["id"]

    def go_on(self) -> str:
        """Run it until it ends or waits; the name of its state."""
        from prefect.exceptions import Pause
        from prefect.flow_engine import run_flow

        with suppress(Pause):
            asyncio.run(run_flow(approve, flow_run=self.client.read_flow_run(self.id), return_type="state"))
        return self.state.name

    @property
    def state(self):
        return self.client.read_flow_run(self.id).state

    def resume(self, **form) -> dict:
        """What the form's Submit sends."""
        answered = self.client.request("POST", "/flow_runs/{id}/resume", path_params={"id": self.id}, json={"run_input": form})
        return answered.json()


@pytest.mark.server
@pytest.mark.slow
def test_a_proposal_waits_for_the_form_and_is_approved(store, server):
    """Suspended with no process, refused without a name, then approved: the record carries the reviewer's word."""
    made = a_written(store)
    run = Run(server, made.id)
    assert run.go_on() == "Suspended"
    assert run.resume(decision="approve")["status"] == "REJECT"
    assert run.resume(decision="approve", reviewer="Ana Silva", comment="go")["status"] == "ACCEPT"
    assert run.go_on() == "Approved"
    assert records.read(made.id, store).approvals[0].via == "prefect"


@pytest.mark.server
@pytest.mark.slow
def test_evidence_that_grew_stale_during_the_wait_ends_as_stale(store, server):
    """A newer record of the same question while the form was open: nothing is approved."""
    made = a_written(store)
    run = Run(server, made.id)
    assert run.go_on() == "Suspended"
    a_written(store, record_id="20991231-newer", created=datetime.now(UTC) + timedelta(days=1))
    run.resume(decision="approve", reviewer="Ana Silva")
    assert run.go_on() == "Stale"
    assert "answers the same question with newer evidence" in run.state.message
    assert records.read(made.id, store).status == "proposed"


@pytest.mark.server
@pytest.mark.slow
def test_latest_means_the_same_record_before_and_after_the_wait(store, server):
    """A record written while the form is open is not what the reviewer saw, so it is not what is answered."""
    made = a_written(store)
    run = Run(server, "latest")
    assert run.go_on() == "Suspended"
    newer = a_written(store, record_id="20991231-newer", created=datetime.now(UTC) + timedelta(days=1))
    run.resume(decision="reject", reviewer="Ana Silva", comment="no")
    assert run.go_on() == "Rejected"
    assert (records.read(made.id, store).status, records.read(newer.id, store).status) == ("rejected", "proposed")


@pytest.mark.server
@pytest.mark.slow
def test_nothing_is_asked_where_there_is_nothing_to_approve(store, server):
    """A held decision ends at once and says why; one answered elsewhere ends with that answer."""
    made = a_written(store)
    held = made.model_copy(update={"id": "20261130-held", "decision": made.decision.model_copy(update={"verdict": "hold"})})
    records.write(held, store)
    run = Run(server, held.id)
    assert run.go_on() == "NotApprovable"
    assert "is held" in run.state.message
    waiting = Run(server, made.id)
    assert waiting.go_on() == "Suspended"
    answer(made.id, False, "Ben Okoro", "", store, "cli")
    waiting.resume(decision="approve", reviewer="Ana Silva")
    assert waiting.go_on() == "Rejected"
    assert "by Ben Okoro via cli already" in waiting.state.message
