"""A person's word on a proposal: asked for on a suspended flow run in Prefect's pages, or given with `crossgrade approve`. One code path.

The flow waits suspended, without a process: it runs on the control pool and holds no device. Resumed, it starts from the top and reads the
record again: a decision that has changed meanwhile is asked about anew (the key of the wait holds its digest), evidence that no longer
speaks for today ends as Stale.
"""

import logging
import re
from datetime import UTC, datetime
from typing import Literal

from prefect import flow
from prefect.artifacts import acreate_markdown_artifact
from prefect.client.schemas.objects import State
from prefect.context import FlowRunContext
from prefect.flow_runs import asuspend_flow_run
from prefect.input import RunInput
from prefect.states import Completed
from pydantic import Field, ValidationError

from flows import report
from tasks import catalog
from tasks import record as records
from tasks.decide import decide
from tasks.errors import BadArtifact, BadRequest, PipelineError, Stale
from tasks.facts import Approval, Record
from tasks.price.evidence import price
from tasks.report.markdown import markdown
from tasks.store import Store

DAY_S = 86_400
ENDS = {"approved": "Approved", "rejected": "Rejected"}

log = logging.getLogger("crossgrade")


class Answer(RunInput):
    """The form on the suspended run."""

    decision: Literal["reject", "approve"] = Field("reject", title="Your decision")
    reviewer: str = Field(min_length=2, max_length=200, title="Your name", description="It goes into the record and into MLflow.")
    comment: str = Field("", max_length=4000, title="Comment")


def answer(  # noqa: PLR0917
    record_id: str,
    approve: bool,
    approver: str,
    comment: str,
    store: Store,
    via: str,
    now: datetime | None = None,
    *,
    shown: str | None = None,
) -> tuple[Record, list[str]]:
    """Write a person's word into a record and tell MLflow.

    Args:
        shown: digest of the decision that the person saw; None where nothing was shown.

    Returns:
        The record with the word; or the record as it is and the reasons why it cannot be answered any more.

    Raises:
        BadRequest: no such record, no usable name, or a record that cannot be approved (not a proposal, simulated, only screened).
        BadArtifact: the record was edited: its decision does not follow from its evidence.
    """
    found = records.read(record_id, store)
    now = now or datetime.now(UTC)
    if shown not in (None, found.decision.digest):
        return found, ["the decision shown is not the one in the record"]
    if approve and (reasons := records.stale(found, store, now.date(), catalog.prices())):
        return found, reasons
    if approve:
        _decide_again(found, store)
    word = {"answer": "approve" if approve else "reject", "approver": approver.strip(), "comment": comment.strip(), "via": via}
    try:
        approval = Approval(decision=found.decision.digest, at=now, **word)
    except ValidationError:
        raise BadRequest(f"{approver!r} is not a name that a record can be signed with", "give your own, two letters or more") from None
    done = records.append(found.id, approval, store)
    try:
        report.to_mlflow(done, store)
    except PipelineError as error:
        log.warning("%s is %s, but MLflow does not know yet: %s", done.id, done.status, error)
    return done, []


def _decide_again(record: Record, store: Store) -> None:
    """A proposal must follow from the evidence beside it: a file's digests prove nothing to whoever can compute them again.

    Decided once by the costs as recorded, which must give what was read; and once by costs from the measured rates.
    """
    if record.decision.verdict != "propose":
        return  # refused for what it is
    said = decide(record.request, record.outcomes, record.costs, {}, store)
    costs, unpriced = price(record.request, record.outcomes, [cost.quote for cost in record.costs], store, record.created.date())
    measured = decide(record.request, record.outcomes, costs, unpriced, store)
    proposals = {(one.verdict, one.recommended, one.recommended_digest) for one in (record.decision, said, measured)}
    if len(proposals) > 1 or said.summary != record.decision.summary:
        why = "it was edited, or made by another version"
        raise BadArtifact(f"record {record.id} does not follow from its own evidence: {why}", "run the migration again")


@flow(name="approve", flow_run_name="approve {record}", persist_result=False)
async def approve(record: str = "latest") -> State:
    """Ask a person whether a proposed migration is made: the run waits, suspended, for the form behind ⋮ > Resume.

    Args:
        record: A record's id, or 'latest' for the newest when this run was made.
    """
    store = Store()
    found = _find(record, store)
    if (end := _ended(found)) is not None:
        return end
    await _show(found, store)
    log.info("to answer: Resume, in the menu (⋮) at the top of this page; or: crossgrade approve %s --as NAME", found.id)
    given = await asuspend_flow_run(
        wait_for_input=Answer.with_initial_data(description=_question(found)),
        timeout=max(1, found.request.policy.max_evidence_age_days) * DAY_S,  # older evidence could not be approved anyway
        key=f"approve-{found.decision.digest}",
    )
    try:
        yes = given.decision == "approve"
        done, reasons = answer(found.id, yes, given.reviewer, given.comment, store, "prefect", shown=found.decision.digest)
    except (BadRequest, BadArtifact, Stale) as error:
        return Completed(name="NotApprovable", message=str(error))
    if reasons:
        return Completed(name="Stale", message=f"{'; '.join(reasons)}. Nothing was approved: run the migration again.")
    await _show(done, store)
    return Completed(name=ENDS[done.status], message=f"{done.id}: {done.status} by {given.reviewer}")


def _find(record: str, store: Store) -> Record:
    """The record; 'latest' means the same one before and after the wait: the newest that existed when the run was made."""
    context = FlowRunContext.get()
    made = context.flow_run.created if context and context.flow_run else None
    if record != "latest" or made is None:
        return records.read(record, store)
    before = [found for found in records.records(store) if found.created <= made]
    return before[0] if before else records.read(record, store)


def _ended(record: Record) -> State | None:
    """How the run ends without asking, or None when there is something to ask."""
    if record.status in ENDS:
        word = record.approvals[-1]
        return Completed(name=ENDS[record.status], message=f"{record.id} was {record.status} by {word.approver} via {word.via} already")
    if record.status != "proposed":
        return Completed(name="NotApprovable", message=f"{record.id} is {record.status}: {record.decision.summary}")
    return None


def _question(record: Record) -> str:
    return (
        f"## Approve {record.model.title}?\n\n{record.decision.summary}\n\nThe card with every check, cost and cell is under this run's "
        f"*Artifacts*; record `{record.id}`."
    )


async def _show(record: Record, store: Store) -> None:
    """The decision card as the run's artifact; its key is the model's, so that the artifact's page is the model's history."""
    key = re.sub(r"[^a-z0-9]+", "-", f"approval-{record.model.id}")
    await acreate_markdown_artifact(key=key, markdown=markdown(record, store), description=f"{record.id}: {record.status}")
