"""The gates of a decision, one function each: evidence in, a Check with what was observed, its interval, its limit and the way out."""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np

from tasks import stats
from tasks.facts import Check, Cost, Evidence, Finding, Margin, Metric, Policy, Score, Slo
from tasks.store import Store
from tasks.units import interval, margin_in_words, ms, points, span, threads, unchanged, usd

Problem = tuple[str, str]  # what is wrong, and what to do about it


class Comparison(NamedTuple):
    """A candidate's metric against the baseline's on the same samples, and whether it is no worse than the margin allows."""

    seen: stats.Difference
    judged: stats.NonInferiority
    margin: Margin

    @property
    def within(self) -> bool:
        """No worse than the margin by the point estimate."""
        return self.judged.loss <= self.judged.limit

    def in_words(self, metric: Metric) -> str:
        """'f1 0.969 against 0.979 (-0.96 points, 95% bounds -1.30 to -0.60), margin 1 point', or 'f1 stays 0.979 (...)'."""
        seen, margin = self.seen, margin_in_words(self.margin, metric)
        level = f"{seen.candidate_value:.3g}"
        bounds = f"{seen.confidence:.0%} bounds"
        if unchanged(seen.value, metric):
            return f"{metric.name} stays {level} ({bounds} {interval(seen.low, seen.high, metric)}), margin {margin}"
        change = f"{points(seen.value, metric)}, {bounds} {span(seen.low, seen.high, metric)}"
        return f"{metric.name} {level} against {seen.baseline_value:.3g} ({change}), margin {margin}"


def samples_ns(evidence: Evidence, store: Store) -> np.ndarray:
    """All latencies of a cell in nanoseconds, repeats one after another."""
    return np.concatenate([store.array(repeat.samples) for repeat in evidence.timing.repeats])


def compare(baseline: Score, candidate: Score, policy: Policy, store: Store) -> Comparison:
    """Paired non-inferiority of two scores on the same samples."""
    metric, margin = baseline.metric, policy.margin_for(baseline.metric)
    seen = stats.paired_difference(metric, store.array(baseline.samples), store.array(candidate.samples), policy.confidence)
    return Comparison(seen, stats.non_inferior(seen, margin, metric), margin)


def accuracy(baseline: Evidence, candidate: Evidence, policy: Policy, store: Store) -> Check:
    """Paired non-inferiority on the evaluation split, by the policy's margin."""
    before, after = baseline.evaluation, candidate.evaluation
    if before is None or after is None:
        which = "baseline" if before is None else "candidate"
        return _unknown("accuracy", f"the {which} has no score on evaluation data", "score it on the evaluation split")
    if problem := _incomparable(before, after):
        return _unknown("accuracy", *problem)
    seen, judged, margin = compared = compare(before, after, policy, store)
    metric = before.metric
    if not np.isfinite([seen.baseline_value, seen.candidate_value]).all():
        return Check(name="accuracy", verdict="fail", detail=f"{metric.name} is not a number", remedy="outputs hold NaN")
    if broken := _useless(before, policy, store):
        return _unknown("accuracy", *broken, before.count)
    same = before.engine == after.engine and not seen.discordant  # then no number of samples would tell them apart
    allowed = margin.value * (abs(seen.baseline_value) if margin.unit == "relative" else 1)
    return Check(
        name="accuracy",
        verdict="pass" if same else judged.verdict,
        observed=seen.value,
        low=seen.low,
        high=seen.high,
        limit=-allowed if metric.higher_is_better else allowed,
        unit=metric.name,
        count=after.count,
        detail="; ".join(filter(None, (compared.in_words(metric), "the same engine, byte for byte" if same else seen.note))),
        remedy="" if same else _remedy(compared, metric),
    )


def latency(evidence: Evidence, slo: Slo, store: Store) -> Check:
    """The upper estimate of the SLO's percentile against the SLO."""
    samples = samples_ns(evidence, store)
    seen = stats.estimate(samples / 1e6, slo.percentile)
    if seen.upper is None or seen.value is None:
        each_s = sum(repeat.wall_ns for repeat in evidence.timing.repeats) / 1e9 / max(seen.count, 1)
        lacking = seen.needed - seen.count
        return _unknown("latency", seen.missing, f"{lacking} more samples, about {max(lacking * each_s, 1):.0f} s", seen.count)
    verdict = _verdict(seen.upper <= slo.latency_ms, seen.value > slo.latency_ms)
    surely = f"at most {ms(seen.upper)}"
    found = {"pass": surely, "fail": ms(seen.value), "unknown": f"{ms(seen.value)}, {surely}"}
    return Check(
        name="latency",
        verdict=verdict,
        observed=seen.value,
        low=seen.low,
        high=seen.upper,
        limit=slo.latency_ms,
        unit="ms",
        count=seen.count,
        detail=f"p{slo.percentile} {found[verdict]} (limit {slo.latency_ms:g} ms)",
        remedy={"pass": "", "fail": "a faster target, or a looser limit", "unknown": f"about {3 * seen.count:,} more samples"}[verdict],
    )


def cost(candidate: Cost | None, baseline: Cost | None, policy: Policy, why_not: str = "") -> Check:
    """The candidate's upper bound against the baseline's lower bound less the saving that is asked for."""
    if candidate is None or baseline is None:
        return _unknown("cost", f"no cost per million for the {'candidate' if baseline else 'baseline'}", why_not or "add its price")
    if min(candidate.low, baseline.low) <= 0:
        return _unknown("cost", "a cost of nothing cannot be compared", "check the price, and that its samples were timed")
    keep = 1 - policy.min_saving
    limit = float(baseline.low) * keep
    surely, at_best = 1 - float(candidate.high / baseline.low), 1 - float(candidate.low / baseline.high)
    verdict = _verdict(float(candidate.high) <= limit, float(candidate.low) > float(baseline.high) * keep)
    money = f"{usd(candidate.usd_per_million)} against {usd(baseline.usd_per_million)}"
    saved = f"saves at least {surely:.0%}" if surely > 0 else f"saves {at_best:.0%} at best"
    return Check(
        name="cost",
        verdict=verdict,
        observed=float(candidate.usd_per_million),
        low=float(candidate.low),
        high=float(candidate.high),
        limit=limit,
        unit="USD per million",
        detail=f"{money} per million: {saved}, asked for {policy.min_saving:.0%}",
        remedy={"pass": "", "fail": "a cheaper target or a faster engine", "unknown": "more repeats: intervals are too wide"}[verdict],
    )


def placement(evidence: Evidence, policy: Policy) -> Check:
    """Whether the intended device ran the graph, with the threads that are paid for."""
    got, target, share = evidence.placement, evidence.cell.target, evidence.placement.share_on_device
    where = f"{got.device}, {', '.join(got.providers) or 'no provider named'}, {got.precision}, {threads(got.threads)}"
    common: dict[str, Any] = {"observed": share, "limit": policy.min_share_on_device, "unit": "share of nodes", "count": got.nodes}
    if got.device.lower() != target.device.lower() or got.threads != target.threads:
        asked = f"{target.device} with {threads(target.threads)} was asked for"
        return Check(
            name="placement", verdict="fail", detail=f"{asked}, got {where}", remedy="fix the target or the runtime's options", **common
        )
    if share is None and target.device != "cpu":
        detail = f"the runtime does not say which nodes ran on {target.device}"
        return Check(name="placement", verdict="unknown", detail=detail, remedy="a runtime that reports placement", **common)
    if share is None:
        return Check(name="placement", verdict="pass", detail=f"read back: {where}; a processor has nowhere else to run nodes", **common)
    elsewhere = f"; elsewhere: {', '.join(got.elsewhere)}" if got.elsewhere else ""
    verdict = _verdict(share >= policy.min_share_on_device, True)
    remedy = "" if verdict == "pass" else "another recipe or runtime, or a lower min_share_on_device"
    return Check(name="placement", verdict=verdict, detail=f"{share:.1%} of nodes on {where}{elsewhere}", remedy=remedy, **common)


def _incomparable(before: Score, after: Score) -> Problem | None:
    if before.metric != after.metric or before.data != after.data or before.count != after.count:
        return "baseline and candidate were not scored on the same samples", "score both on one evaluation split"
    if before.metric.fidelity:
        return f"{before.metric.name} is agreement with the FP32 model, not accuracy", "give the model labelled data"
    return None


def _useless(baseline: Score, policy: Policy, store: Store) -> Problem | None:
    """A baseline that may as well score nothing: whatever is no worse than that is no news.

    Its bootstrap interval reaches 0 when resampling so often draws none of the few samples that score: (1 - scoring / n)^n.
    """
    metric, pairs = baseline.metric, store.array(baseline.samples)
    scoring = np.count_nonzero(pairs[:, 0]) / len(pairs)
    if not metric.higher_is_better or metric.transform != "identity" or (1 - scoring) ** len(pairs) < 1 - policy.confidence:
        return None
    level = f"{metric.name} of the baseline is {stats.value(metric, pairs):.3g} on {len(pairs):,} samples"
    return f"{level}: not surely above 0", "the baseline itself does not work on this data: check labels and preprocessing"


def _remedy(compared: Comparison, metric: Metric) -> str:
    seen, judged, margin = compared
    if judged.verdict != "unknown":
        return "" if judged.verdict == "pass" else "another recipe, or a wider margin"
    needed = stats.pairs_to_settle(seen, margin, metric)
    if needed is None:
        return f"no number of pairs would show it: the loss observed on {seen.count:,} is not below the margin"
    return f"about {needed:,} pairs at {seen.discordant / seen.count:.1%} discordance; the set has {seen.count:,}"


def _verdict(passes: bool, fails: bool) -> Literal["pass", "fail", "unknown"]:
    return "pass" if passes else "fail" if fails else "unknown"


def _unknown(name: Literal["accuracy", "latency", "cost"], detail: str, remedy: str, count: int | None = None) -> Check:
    return Check(name=name, verdict="unknown", detail=detail, remedy=remedy, count=count)


def nearness(finding: Finding, priced: Mapping[str, Cost]) -> tuple[bool, int, float, str]:
    """Sort key: undecided before refused, then by gates passed, then the cheapest."""
    passed = sum(gate.verdict == "pass" for gate in finding.checks)
    usd_per_million = float(priced[finding.cell].usd_per_million) if finding.cell in priced else float("inf")
    return finding.verdict != "inconclusive", -passed, usd_per_million, finding.cell
