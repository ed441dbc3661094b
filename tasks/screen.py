"""What a screen is for: to drop what clearly will not do, and to choose the few that are worth a valid measurement."""

from collections.abc import Sequence

import numpy as np

from tasks.checks import Comparison, compare
from tasks.facts import Evidence, Outcome, Policy, Score, Unmeasured
from tasks.store import Store

DEAD_HEAT = 0.02  # rates that differ by less are one rate to a screen of a second


def shortlist(outcomes: Sequence[Outcome], reference: Score | None, policy: Policy, store: Store) -> tuple[list[str], dict[str, str]]:
    """Which of the cells screened on one target go on to a valid measurement.

    Args:
        reference: the baseline's score on development data, or None where it is unknown: then accuracy drops nothing.

    Returns:
        The digests of at most `policy.finalists` cells, and the reason of every other: digest -> sentence.
    """
    reasons: dict[str, str] = {}
    able: list[Evidence] = []
    for outcome in outcomes:
        reason = _refusal(outcome, reference, policy, store)
        if reason is None and isinstance(outcome, Evidence):
            able.append(outcome)
        else:
            reasons[outcome.cell.digest] = reason or ""
    ranked = _ranked(able, reference, policy, store)
    chosen, rest = ranked[: policy.finalists], ranked[policy.finalists :]
    for evidence in rest:
        reasons[evidence.cell.digest] = _slower(evidence, chosen[0])
    return [evidence.cell.digest for evidence in chosen], reasons


def reason_against(evidence: Evidence, others: Sequence[Evidence], reference: Score | None, policy: Policy, store: Store) -> str:
    """Why a screened cell went no further, told from the evidence alone: refused, or slower than what did on its target."""
    if refused := _refusal(evidence, reference, policy, store):
        return refused
    same = [other for other in others if other.cell.target == evidence.cell.target and other.mode == "valid"]
    ahead = [other for other in same if other.cell != evidence.cell and rate_per_s(other) > rate_per_s(evidence)]
    if ahead:
        return _slower(evidence, max(ahead, key=rate_per_s))
    first = ", ".join(other.cell.name for other in same if other.cell != evidence.cell) or "other cells"
    return f"the screen put {first} before it, by speed and accuracy; the policy times {policy.finalists} of a target properly"


def rate_per_s(evidence: Evidence) -> float:
    """Completed inferences per second of sampling."""
    repeats = evidence.timing.repeats
    return 1e9 * sum(repeat.count for repeat in repeats) / max(sum(repeat.wall_ns for repeat in repeats), 1)


def _refusal(outcome: Outcome, reference: Score | None, policy: Policy, store: Store) -> str | None:
    """Why a cell surely will not do, or None."""
    if isinstance(outcome, Unmeasured):
        return f"not measured, {outcome.stage} failed: {outcome.reason}"
    share = outcome.placement.share_on_device
    if share is not None and share < policy.min_share_on_device:
        names = ", ".join(outcome.placement.elsewhere) or "unnamed operators"
        return (
            f"fell back: {share:.1%} of nodes on {outcome.placement.device}, the policy asks for {policy.min_share_on_device:.1%} ({names})"
        )
    seen = _development(outcome, reference, policy, store)
    if reference is None or seen is None:
        return None
    if not np.isfinite(seen.seen.candidate_value):
        return f"refused on accuracy: {reference.metric.name} is not a number"
    return f"refused on accuracy: {seen.in_words(reference.metric)}" if seen.judged.verdict == "fail" else None


def _development(evidence: Evidence, reference: Score | None, policy: Policy, store: Store) -> Comparison | None:
    score = evidence.development
    if reference is None or score is None or (score.metric, score.data, score.count) != (reference.metric, reference.data, reference.count):
        return None
    return compare(reference, score, policy, store)


def _ranked(able: Sequence[Evidence], reference: Score | None, policy: Policy, store: Store) -> list[Evidence]:
    """Fastest first; behind them those whose accuracy looks too low without being surely so. A dead heat goes by name."""
    doubtful = {}
    for evidence in able:
        seen = _development(evidence, reference, policy, store)
        doubtful[evidence.cell.digest] = seen is not None and not seen.within
    left, ranked = sorted(able, key=lambda evidence: evidence.cell.name), []
    while left:
        likely = [evidence for evidence in left if not doubtful[evidence.cell.digest]] or left
        fastest = max(rate_per_s(evidence) for evidence in likely)
        first = next(evidence for evidence in likely if rate_per_s(evidence) >= (1 - DEAD_HEAT) * fastest)
        ranked.append(first)
        left.remove(first)
    return ranked


def _slower(evidence: Evidence, than: Evidence) -> str:
    """In the quantity that ranks: requests a second, of which cost is made. A median alone hides stalls."""
    here, there = rate_per_s(evidence), rate_per_s(than)
    if here >= there * (1 - DEAD_HEAT):
        return f"accurate, but no faster than {than.cell.name}: {here:,.0f}/s against {there:,.0f}/s"
    return f"accurate, but slower than {than.cell.name}: {here:,.0f}/s against {there:,.0f}/s"
