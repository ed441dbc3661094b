"""May these numbers decide anything, and may they be compared? The gate before all others."""

from collections.abc import Callable, Iterator

from tasks.checks import Problem
from tasks.facts import Check, Evidence, Policy, Repeat
from tasks.store import Store

SPOILS = ("ran on ", "the clock went backwards", "samples took no time at all")  # what a repeat may say that makes its numbers worthless
CROWDED = 0.25  # of its cores: a cell that shares more than that is slowed down by what is not itself


def validity(baseline: Evidence, candidate: Evidence, policy: Policy, store: Store) -> Check:
    """Whether the numbers may decide anything at all, and may be compared with each other."""
    never = [*_never(candidate), *_spoiled(candidate, "")]
    if never:
        return Check(name="validity", verdict="fail", detail="; ".join(what for what, _ in never), remedy=never[0][1])
    again = [
        *((f"baseline: {what}", remedy) for what, remedy in (*_never(baseline), *_spoiled(baseline, ""))),
        *_short(baseline, policy, "baseline: "),
        *_short(candidate, policy, ""),
        *_unlike(baseline, candidate),
        *_unproven(candidate, store),
    ]
    if again:
        return Check(
            name="validity",
            verdict="unknown",
            detail="; ".join(what for what, _ in again),
            remedy="; ".join(dict.fromkeys(remedy for _, remedy in again)),
        )
    repeats = len(candidate.timing.repeats)
    return Check(
        name="validity",
        verdict="pass",
        count=repeats,
        detail=f"valid mode, {repeats} fresh processes, the engine that was timed was scored",
    )


def _never(evidence: Evidence) -> Iterator[Problem]:
    if evidence.cell.target.simulated:
        yield "its target is simulated", "run it on the real device: a simulated target can never be approved"
    if evidence.mode != "valid":
        yield "screen only", "raise the policy's finalists to measure it in valid mode"
    if evidence.timing.workload.batch != 1:
        yield f"timed at batch {evidence.timing.workload.batch}, and only batch 1 is fed in this version", "measure it at batch 1"


def _spoiled(evidence: Evidence, who: str) -> Iterator[Problem]:
    for warning in dict.fromkeys(text for repeat in evidence.timing.repeats for text in repeat.warnings):
        if any(text in warning for text in SPOILS):
            yield f"{who}{warning}", "measure it again"


def _short(evidence: Evidence, policy: Policy, who: str) -> Iterator[Problem]:
    repeats = evidence.timing.repeats
    if (missing := policy.valid.repeats - len(repeats)) > 0:
        yield f"{who}{len(repeats)} repeats, the policy asks for {policy.valid.repeats}", f"{missing} more repeats in fresh processes"
    if 2 * (unstable := sum(map(_unstable, repeats))) > len(repeats):
        yield f"{who}unstable in {unstable} of {len(repeats)} repeats", "measure again on a quiet machine"
    if 2 * (shared := sum((repeat.foreign_cores or 0) > CROWDED * evidence.cell.target.threads for repeat in repeats)) > len(repeats):
        yield f"{who}other work on its cores in {shared} of {len(repeats)} repeats", "measure again on a quiet machine"


def _unstable(repeat: Repeat) -> bool:
    return any(warning.startswith("unstable") for warning in repeat.warnings)


SAME: dict[str, Callable[[Evidence], object]] = {
    "boundary": lambda evidence: evidence.timing.boundary,
    "measuring code": lambda evidence: evidence.timing.harness,
    "workload": lambda evidence: evidence.timing.workload,
}
"""What must agree before two timings may be compared."""


def _unlike(baseline: Evidence, candidate: Evidence) -> Iterator[Problem]:
    for what, of in SAME.items():
        if of(baseline) != of(candidate):
            yield f"the baseline was timed with another {what}", "measure both again in one migration"
    same_target = baseline.cell.target == candidate.cell.target
    if same_target and (baseline.host.hostname, baseline.host.cpu) != (candidate.host.hostname, candidate.host.cpu):
        yield "one target, but measured on two machines", "measure both again on one machine"


def _unproven(evidence: Evidence, store: Store) -> Iterator[Problem]:
    score, recipe = evidence.evaluation, evidence.cell.recipe
    if not store.has(evidence.engine.sha256):
        yield "the engine is no longer in the store", "run the migration again"
    if score is None:
        return
    if score.engine != evidence.engine.sha256:
        yield "the score belongs to another engine than the timing", "score the engine that was timed"
    if recipe.calibration_items and score.calibration is None:
        yield "which samples calibrated it is not recorded", "quantize it again"
    development = evidence.development.data if evidence.development else None
    if score.data in (score.calibration, development):
        yield "it was judged on samples it was tuned on", "give the model separate splits"
