"""The record of a migration: written once, approved by appending, read with suspicion. The file is the truth; MLflow holds a copy."""

import logging
import re
from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path

from tasks.errors import BadArtifact, BadRequest, Stale
from tasks.facts import Approval, Cost, Decision, Evidence, ModelSpec, Outcome, Quote, Record, Request, evidence_digest
from tasks.schema import RECORD_VERSION, dump, load
from tasks.store import Store, write_atomically

ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
log = logging.getLogger("crossgrade")


def new(  # noqa: PLR0917
    model: ModelSpec,
    request: Request,
    outcomes: Sequence[Outcome],
    costs: Sequence[Cost],
    decision: Decision,
    store: Store,
    created: datetime | None = None,
) -> Record:
    """A record of a decision; its id is the UTC time, the model and six digits of the decision, so the same made twice is one record."""
    created = created or datetime.now(UTC)
    record_id = f"{created:%Y%m%d-%H%M%S}-{model.id[:40]}-{decision.digest[:6]}"
    earlier = [old.id for old in records(store) if _same_question(old.request, request) and old.id != record_id]
    return Record(
        version=RECORD_VERSION,
        id=record_id,
        created=created,
        model=model,
        request=request,
        outcomes=tuple(outcomes),
        costs=tuple(costs),
        decision=decision,
        supersedes=earlier[0] if earlier else None,
    )


def folder(record_id: str, store: Store) -> Path:
    """Where a record and its plots lie; BadRequest for what is no id, so that no id leads out of the store."""
    if not ID.fullmatch(record_id):
        raise BadRequest(f"{record_id!r} is not a record's id", "`crossgrade record list` shows them")
    return store.root / "records" / record_id


def write(record: Record, store: Store) -> Record:
    """Write a new record; returns what the store holds. A run made again finds its own record, with the words given since.

    Raises:
        BadRequest: another record has its id.
    """
    path = folder(record.id, store) / "record.json"
    with store.lock(f"record-{record.id}"):
        if not path.exists():
            write_atomically(path, dump(record))
            return record
        found = read(record.id, store)
        later = {"approvals": record.approvals, "supersedes": record.supersedes}  # what may come to be after the evidence
        if found.model_copy(update=later) != record:
            raise BadRequest(f"record {record.id} exists and is another one", "a record is never overwritten: approve, reject or reopen it")
    return found


def read(path_or_id: Path | str, store: Store) -> Record:
    """A record by its id, by its file (a Path, or a text that ends in .json), or the newest by the word 'latest'.

    Raises:
        BadRequest: there is none.
        BadArtifact: the file is no record, was edited, or lies under another record's id.
    """
    if path_or_id == "latest":
        if not (known := records(store)):
            raise BadRequest(f"there are no records in {store.root / 'records'}", "`crossgrade migrate MODEL` makes one")
        return known[0]
    by_id = isinstance(path_or_id, str) and not path_or_id.endswith(".json")
    path = folder(str(path_or_id), store) / "record.json" if by_id else Path(path_or_id)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BadRequest(f"no record {path_or_id} ({path}: {error.strerror})", "`crossgrade record list` shows them") from error
    except ValueError as error:  # a NUL, or half a character
        raise BadRequest(f"no record {str(path_or_id)!r}: no file can have that name", "`crossgrade record list` shows them") from error
    record = load(data, str(path))
    if by_id and record.id != path_or_id:
        raise BadArtifact(f"{path} holds record {record.id}", "move it to the folder of its own id")
    return record


def records(store: Store) -> list[Record]:
    """All records, newest first. One that cannot be read is named in the log and left out: it must not hide the others."""
    found = []
    for path in sorted((store.root / "records").glob("*/record.json")):
        try:
            found.append(read(path.parent.name, store))
        except (BadArtifact, BadRequest) as error:
            log.warning("record left out: %s", error)
    return sorted(found, key=lambda record: (record.created, record.id), reverse=True)


def append(record_id: str, approval: Approval, store: Store) -> Record:
    """Add a person's word to a record; returns the record with it. The same word of the same person twice counts once.

    Raises:
        Stale: the word was given on another decision than the record's.
        BadRequest: what is not proposed cannot be approved, what is not approved cannot be reopened, what was reopened stays so.
        BadArtifact: the record's evidence is not what its decision was made from.
    """
    path = folder(record_id, store) / "record.json"
    with store.lock(f"record-{record_id}"):
        record = read(record_id, store)
        if approval.decision != record.decision.digest:
            shown, now = approval.decision[:12], record.decision.digest[:12]
            raise Stale(
                f"the decision shown ({shown}) is not the one in record {record_id} ({now})", "read the decision again, then answer"
            )
        if record.approvals and _same_word(record.approvals[-1], approval):
            return record
        _refuse_impossible(record, approval)
        record = record.model_copy(update={"approvals": (*record.approvals, approval)})
        write_atomically(path, dump(record))
    return record


def stale(record: Record, store: Store, today: date, known: Sequence[Quote] = ()) -> list[str]:
    """Why a record no longer speaks for today, one sentence each; empty when it does.

    Args:
        known: the price table as it is now; a newer, different price of what the record compares makes it stale.
    """
    newer = [r for r in records(store) if _same_question(r.request, record.request) and r.created > record.created]
    reasons = [f"record {newer[0].id} answers the same question with newer evidence"] if newer else []
    for outcome in _compared(record):
        reasons += _stale_evidence(outcome, record, store, today)
    names = {record.request.baseline.name, record.decision.recommended}
    for cost in record.costs:
        if cost.cell in names:
            reasons += _stale_price(cost, record, today, known)
    return list(dict.fromkeys(reasons))


def _same_question(one: Request, other: Request) -> bool:
    return one.model == other.model and one.baseline == other.baseline


def _same_word(one: Approval, other: Approval) -> bool:
    return (one.decision, one.answer, one.approver) == (other.decision, other.answer, other.approver)


def _refuse_impossible(record: Record, approval: Approval) -> None:
    if approval.answer == "reopen" and record.status != "approved":
        raise BadRequest(f"record {record.id} is {record.status}, not approved", "only an approved migration can be reopened")
    if approval.answer != "approve":
        return
    if record.decision.verdict != "propose" or record.decision.recommended_digest is None:
        raise BadRequest(f"record {record.id} is {record.status}: {record.decision.summary}", "only a proposal can be approved")
    _refuse_answered(record)
    _refuse_edited(record)
    try:
        outcome = record.outcome(record.decision.recommended_digest)
    except KeyError:
        raise BadArtifact(f"record {record.id} recommends a cell it does not hold") from None
    if not isinstance(outcome, Evidence) or outcome.mode != "valid" or outcome.cell.target.simulated:
        raise BadRequest(f"{outcome.cell.name} was not measured in valid mode on a real device", "run the migration on the real target")


def _refuse_answered(record: Record) -> None:
    """Once reopened, for ever: evidence that a night has refuted is not approved again, whatever was said in between."""
    if reopened := [word for word in record.approvals if word.answer == "reopen"]:
        raise BadRequest(f"record {record.id} was reopened: {reopened[-1].comment}", "run the migration again and approve the new record")
    if record.status == "approved":
        raise BadRequest(f"record {record.id} was approved by {record.approvals[-1].approver} already", "there is nothing left to approve")


def _refuse_edited(record: Record) -> None:
    """A file's sha256 can be computed again by whoever edits it; what the decision is bound to must agree, too."""
    bound = evidence_digest(record.request, record.outcomes, record.costs) == record.decision.evidence
    if not bound or record.model.digest != record.request.model_digest:
        raise BadArtifact(f"record {record.id} does not hold the evidence it was decided on: it was edited", "run the migration again")


def _compared(record: Record) -> list[Evidence]:
    wanted = {record.request.baseline.digest, record.decision.recommended_digest}
    return [outcome for outcome in record.outcomes if isinstance(outcome, Evidence) and outcome.cell.digest in wanted]


def _stale_evidence(evidence: Evidence, record: Record, store: Store, today: date) -> list[str]:
    name, limit = evidence.cell.name, record.request.policy.max_evidence_age_days
    age = (today - evidence.measured.date()).days
    reasons = [f"{name} was measured {age} days ago, the policy allows {limit}"] if age > limit else []
    if age < -1:  # a day for time zones
        reasons.append(f"{name} was measured {-age} days in the future: a clock was wrong")
    if not store.has(evidence.engine.sha256):
        reasons.append(f"the engine of {name} is missing or was changed")
    scores = [score.samples for score in (evidence.development, evidence.evaluation) if score]
    if not all(store.has(sha256) for sha256 in [repeat.samples for repeat in evidence.timing.repeats] + scores):
        reasons.append(f"samples of {name} are missing or were changed")
    return reasons


def _stale_price(cost: Cost, record: Record, today: date, known: Sequence[Quote]) -> list[str]:
    quote, limit = cost.quote, record.request.policy.max_price_age_days
    age = (today - quote.as_of).days
    reasons = [f"the price of {quote.instance_type} is {age} days old, the policy allows {limit}"] if age > limit else []
    if age < -1:
        reasons.append(f"the price of {quote.instance_type} is dated {-age} days in the future")
    since = sorted((q for q in known if _sku(q) == _sku(quote) and quote.as_of <= q.as_of <= today), key=lambda q: q.as_of)
    newest = since[-1] if since else quote  # of two from one day, the one further down the table
    if newest.per_hour != quote.per_hour:
        reasons.append(f"{quote.instance_type} costs ${newest.per_hour}/h since {newest.as_of}, the record says ${quote.per_hour}/h")
    return reasons


def _sku(quote: Quote) -> tuple[str, ...]:
    return quote.provider, quote.instance_type, quote.region, quote.tier
