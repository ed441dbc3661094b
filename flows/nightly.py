"""Every night: measure what was approved again, beside its baseline; a regression re-opens the approval and names what changed.

Scheduled in deployments/prefect.yaml, started by hand from the Prefect UI, or as `crossgrade nightly`.
"""

import asyncio
import logging
from collections.abc import Sequence
from datetime import UTC, datetime

from prefect import flow
from prefect.artifacts import acreate_markdown_artifact
from prefect.client.schemas.objects import State
from prefect.events import emit_event
from prefect.states import Completed

from flows import report
from flows.migrate import Sweep, in_this_process
from flows.sweep import by_worker
from tasks import journal
from tasks import record as records
from tasks.catalog import prices
from tasks.decide import decide
from tasks.errors import BadRequest
from tasks.facts import Approval, Evidence, Night, Outcome, Record
from tasks.price.evidence import price, rate_of
from tasks.regress import Pair, compare
from tasks.store import Store, write_atomically

log = logging.getLogger("crossgrade")
REOPENS = ("slower", "broken")


@flow(name="nightly", persist_result=False)
async def nightly(models: list[str] = []) -> State:  # noqa: B006 (Prefect reads the default from the signature)
    """Measure every approved migration again and re-open those that regressed.

    Args:
        models: Only these models; empty means all that have an approved migration.
    """
    store = Store()
    found = [await night(record, store, by_worker) for record in champions(models, store)]
    if found:
        await acreate_markdown_artifact(key="nightly", markdown=report.nights_in_markdown(found), description="what was approved, tonight")
    for one in found:
        if one.verdict in REOPENS:
            emit_event("crossgrade.approval.reopened", resource={"prefect.resource.id": f"crossgrade.record.{one.record}"})
    regressed = [one.record for one in found if one.verdict in REOPENS]
    if regressed:
        return Completed(name="Regressed", message=f"re-opened: {', '.join(regressed)}")
    return Completed(name="Same" if found else "NothingApproved", message=f"{len(found)} approved migrations measured")


def remeasure_all(models: Sequence[str], store: Store) -> list[str]:
    """The same without servers; one line per approved migration."""
    found = [asyncio.run(night(record, store, in_this_process)) for record in champions(models, store)]
    return [f"{one.record}: {one.verdict}: {one.detail}" for one in found] or ["nothing is approved yet: crossgrade approve"]


def champions(models: Sequence[str], store: Store) -> list[Record]:
    """The newest approved record of each model. BadRequest for a model that has none."""
    newest: dict[str, Record] = {}
    for record in records.records(store):
        if record.status == "approved":
            newest.setdefault(record.model.id, record)
    if missing := sorted(set(models) - set(newest)):
        raise BadRequest(f"no approved migration of {', '.join(missing)}", f"approved: {', '.join(newest) or 'none yet'}")
    return [record for model, record in newest.items() if not models or model in models]


async def night(record: Record, store: Store, sweep: Sweep) -> Night:
    """Measure a record's champion beside its baseline, compare, and re-open the approval when it regressed."""
    champion = record.outcome(record.decision.recommended_digest or "").cell
    request = record.request.model_copy(update={"candidates": (champion,)})
    with journal.begin(request, store) as attempt:
        for target in dict.fromkeys((request.baseline.target.name, champion.target.name)):
            await sweep(attempt, target)
        outcomes = attempt.outcomes()
        costs, unpriced = price(request, outcomes, prices(), store, attempt.started.date())
        decision = decide(request, outcomes, costs, unpriced, store)
        then = (record.outcome(record.request.baseline.digest), record.outcome(champion.digest))
        found = compare(record, outcomes, decision, attempt.started, _pair(then, store), _pair(outcomes, store))
        write_atomically(
            store.root / "nights" / record.id / f"{attempt.started:%Y%m%d-%H%M%S}.json", found.model_dump_json(indent=1).encode()
        )
        if found.verdict in REOPENS:
            reopen(record, found, store)
        attempt.close()
    log.info("%s: %s: %s", record.id, found.verdict, found.detail)
    return found


def reopen(record: Record, found: Night, store: Store) -> Record:
    """Take the approval back, say why, and take the champion alias from the model version."""
    why = "; ".join([f"{found.verdict}: {found.detail}", *found.changes])
    word = Approval(
        decision=record.decision.digest, answer="reopen", approver="nightly", comment=why[:4000], at=datetime.now(UTC), via="nightly"
    )
    reopened = records.append(record.id, word, store)
    report.to_mlflow(reopened, store)
    return reopened


def _pair(outcomes: Sequence[Outcome], store: Store) -> Pair | None:
    baseline, champion = outcomes
    if not (isinstance(baseline, Evidence) and isinstance(champion, Evidence)):
        return None
    return Pair(rate_of(baseline, store), rate_of(champion, store))
