"""From evidence to a verdict: which cells go on from the screen, and whether one of them may replace the baseline."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from tasks import checks
from tasks.facts import Cell, Check, Cost, Decision, Evidence, Finding, Outcome, Request, Unmeasured, Verdict, evidence_digest
from tasks.screen import reason_against, shortlist
from tasks.store import Store
from tasks.units import change, usd
from tasks.validity import validity

__all__ = ["decide", "shortlist"]


def decide(request: Request, outcomes: Sequence[Outcome], costs: Sequence[Cost], no_quotes: Mapping[str, str], store: Store) -> Decision:
    """The verdict on every candidate, and the one that is recommended.

    Args:
        outcomes: of the baseline and the candidates; a cell's valid evidence counts before its screen.
        costs: by cell name, where there is a price.
        no_quotes: cell digest -> why there is no price.
    """
    priced = {cost.cell: cost for cost in costs}
    case = Case(request, _by_cell(outcomes), priced, no_quotes, store)
    findings = tuple(_finding(cell, case) for cell in request.candidates)
    proposed = [finding for finding in findings if finding.verdict == "propose"]
    best = min(proposed, key=lambda finding: (priced[finding.cell].high, finding.cell), default=None)
    verdict: Verdict = "propose" if best else _without_proposal(findings)
    return Decision(
        verdict=verdict,
        recommended=best.cell if best else None,
        recommended_digest=best.cell_digest if best else None,
        findings=findings,
        summary=_proposal(request, best, priced) if best else _no_proposal(case, findings, verdict),
        missing=_missing(findings) if verdict == "inconclusive" else (),
        evidence=evidence_digest(request, outcomes, costs),
    )


def _by_cell(outcomes: Iterable[Outcome]) -> dict[str, Outcome]:
    def rank(outcome: Outcome) -> int:
        return 0 if isinstance(outcome, Unmeasured) else 2 if outcome.mode == "valid" else 1

    return {outcome.cell.digest: outcome for outcome in sorted(outcomes, key=rank)}


class Case(NamedTuple):
    """All that is known when the candidates are judged."""

    request: Request
    known: Mapping[str, Outcome]
    priced: Mapping[str, Cost]
    no_quotes: Mapping[str, str]
    store: Store

    @property
    def baseline(self) -> Outcome | None:
        return self.known.get(self.request.baseline.digest)


def _finding(cell: Cell, case: Case) -> Finding:
    candidate, baseline, policy, store = case.known.get(cell.digest), case.baseline, case.request.policy, case.store
    if not isinstance(candidate, Evidence):
        return _unmeasured(cell, candidate)
    if not isinstance(baseline, Evidence):
        return _found(cell, "inconclusive", (), _no_baseline(case))
    may_decide, placed = validity(baseline, candidate, policy, store), checks.placement(candidate, policy)
    if candidate.mode != "valid":
        others = [known for known in case.known.values() if isinstance(known, Evidence) and known.cell != case.request.baseline]
        reason = reason_against(candidate, others, baseline.development, policy, store)
        return _found(cell, "hold", (placed, may_decide), f"screen only: {reason}")
    old, new = case.priced.get(case.request.baseline.name), case.priced.get(cell.name)
    why_not = case.no_quotes.get(cell.digest) or case.no_quotes.get(case.request.baseline.digest, "")
    gates = (
        checks.accuracy(baseline, candidate, policy, store),
        checks.latency(candidate, case.request.slo, store),
        checks.cost(new, old, policy, why_not),
        placed,
        may_decide,
    )
    return _judged(cell, gates)


def _unmeasured(cell: Cell, outcome: Unmeasured | None) -> Finding:
    """What cannot be built is held; what was not measured by misfortune may be measured again."""
    if outcome is None:
        return _found(cell, "inconclusive", (), "not measured: no outcome was reported")
    verdict: Verdict = "inconclusive" if outcome.stage == "measure" else "hold"
    return _found(cell, verdict, (), f"not measured, {outcome.stage} failed: {outcome.reason}")


def _judged(cell: Cell, gates: tuple[Check, ...]) -> Finding:
    ends: tuple[tuple[str, Verdict], ...] = (("fail", "hold"), ("unknown", "inconclusive"))
    for verdict, end in ends:
        if stopped := [gate for gate in gates if gate.verdict == verdict]:
            return _found(cell, end, gates, "; ".join(f"{gate.name}: {gate.detail}" for gate in stopped))
    return _found(cell, "propose", gates, "passes every check")


def _found(cell: Cell, verdict: Verdict, gates: tuple[Check, ...], reason: str) -> Finding:
    return Finding(cell=cell.name, cell_digest=cell.digest, verdict=verdict, checks=gates, reason=reason)


def _without_proposal(findings: Sequence[Finding]) -> Literal["hold", "inconclusive"]:
    judged = any(finding.checks for finding in findings)
    return "hold" if judged and all(finding.verdict == "hold" for finding in findings) else "inconclusive"


def _proposal(request: Request, best: Finding, priced: Mapping[str, Cost]) -> str:
    new, old = priced[best.cell], priced[request.baseline.name]
    gates = {gate.name: gate for gate in best.checks}
    least = 1 - float(new.high / old.low)
    money = f"{usd(new.usd_per_million)} per million instead of {usd(old.usd_per_million)}"
    saved = f"{change(float(new.usd_per_million), float(old.usd_per_million))}, at least {-least:+.0%}"
    return (
        f"Move {request.model} from {request.baseline.name} to {best.cell}: {money} ({saved}); "
        f"{gates['accuracy'].detail}; {gates['latency'].detail}."
    )


def _no_proposal(case: Case, findings: Sequence[Finding], verdict: Verdict) -> str:
    model, baseline = case.request.model, case.request.baseline.name
    if not isinstance(case.baseline, Evidence):
        return f"Not decided for {model}: {_no_baseline(case).rstrip('.')}."
    if not findings:
        return f"Keep {model} on {baseline}: there is no candidate."
    nearest = min(findings, key=lambda finding: checks.nearness(finding, case.priced))
    start = f"Keep {model} on {baseline}" if verdict == "hold" else f"Not decided for {model}"
    return f"{start}. Nearest candidate: {nearest.cell}; {nearest.reason.rstrip('.')}."


def _no_baseline(case: Case) -> str:
    why = case.baseline.reason if isinstance(case.baseline, Unmeasured) else "no outcome was reported"
    return f"the baseline {case.request.baseline.name} was not measured: {why}"


def _missing(findings: Sequence[Finding]) -> tuple[str, ...]:
    missing: dict[str, list[str]] = {}
    for finding in findings:
        if finding.verdict != "inconclusive":
            continue
        remedies = [gate.remedy for gate in finding.checks if gate.verdict == "unknown" and gate.remedy]
        for remedy in dict.fromkeys(remedies or [finding.reason]):
            missing.setdefault(remedy, []).append(finding.cell)
    return tuple(f"{', '.join(cells)}: {remedy}" for remedy, cells in missing.items())
