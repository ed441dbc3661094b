"""Has an approved migration changed overnight? Pure comparison of two nights' evidence.

The baseline is measured in turn with the champion and is the canary: what slows both is the host, and no build is blamed for it.
"""

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Literal

from tasks.facts import Decision, Evidence, Host, Night, Outcome, Record, Unmeasured
from tasks.stats import Rate, ratio

Verdict = Literal["same", "faster", "slower", "ambiguous", "broken"]
FLOOR = 0.10  # a change of speed below this is none: processes on one host differ by that much from day to day


def compare(
    record: Record, outcomes: Sequence[Outcome], decision: Decision, at: datetime, then: "Pair | None", now: "Pair | None"
) -> Night:
    """Tonight's verdict on a record.

    Args:
        outcomes: tonight's, baseline first.
        decision: what tonight's evidence alone would decide.
        then, now: rates of baseline and champion when it was approved, and tonight; None where one was not measured.
    """
    champion = next(out for out in outcomes if out.cell.digest == record.decision.recommended_digest)
    changes = changed(record.outcome(champion.cell.digest), champion)
    night = partial(Night, record=record.id, at=at, changes=changes, decision=decision, outcomes=tuple(outcomes))
    if isinstance(champion, Unmeasured):
        return night(verdict="broken", detail=f"the champion could not be measured: {champion.reason}")
    if then is None or now is None:
        return night(verdict="ambiguous", detail="the baseline could not be measured: nothing to compare with")
    relative = ratio(_relative(now), _relative(then))
    verdict, detail = _judge(relative, ratio(now.baseline, then.baseline))
    if decision.verdict == "hold":
        verdict, detail = "broken", f"what was approved would not be proposed today: {decision.summary}"
    elif decision.verdict == "inconclusive":
        verdict, detail = "ambiguous", f"tonight's evidence decides nothing: {'; '.join(decision.missing) or decision.summary}"
    return night(verdict=verdict, detail=detail, ratio=relative.value, low=relative.low, high=relative.high)


class Pair:
    """Rates of baseline and champion on one night."""

    def __init__(self, baseline: Rate, champion: Rate) -> None:
        self.baseline, self.champion = baseline, champion


def _relative(pair: Pair) -> Rate:
    """How much faster than the baseline the champion was."""
    return ratio(pair.champion, pair.baseline)


def _judge(relative: Rate, host: Rate) -> tuple[Verdict, str]:
    words = f"against the baseline of the same night, its rate is {relative.value:.3f} of then [{relative.low:.3f}, {relative.high:.3f}]"
    if relative.high < 1 - FLOOR:
        return "slower", words
    if relative.low > 1 + FLOOR:
        return "faster", words
    if host.high < 1 - FLOOR or host.low > 1 + FLOOR:
        return "same", f"{words}; the host itself ran at {host.value:.2f} of its rate then"
    if relative.low < 1 - 2 * FLOOR or relative.high > 1 + 2 * FLOOR:
        return "ambiguous", f"{words}: too wide to tell; measure again on a quieter machine"
    return "same", words


def changed(then: Outcome, now: Outcome) -> tuple[str, ...]:
    """What differs between two nights: packages, kernel, host, engine."""
    if not (isinstance(then, Evidence) and isinstance(now, Evidence)):
        return ()
    found = [f"{name}: {before} -> {after}" for name, before, after in _differences(then.host, now.host)]
    if then.engine.sha256 != now.engine.sha256:
        found.append(f"engine: {then.engine.sha256[:12]} -> {now.engine.sha256[:12]}")
    if then.placement != now.placement:
        found.append(
            f"placement: {then.placement.precision} on {then.placement.device} -> {now.placement.precision} on {now.placement.device}"
        )
    return tuple(found)


def _differences(then: Host, now: Host) -> list[tuple[str, str, str]]:
    names = sorted({*then.packages, *now.packages})
    packages = [(name, then.packages.get(name, "absent"), now.packages.get(name, "absent")) for name in names]
    fields = [(name, str(getattr(then, name)), str(getattr(now, name))) for name in ("hostname", "cpu", "kernel", "driver", "python")]
    return [(name, before, after) for name, before, after in packages + fields if before != after]
