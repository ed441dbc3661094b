"""What every report tells, made once: a row per cell, the candidate that matters, its checks and its cost in words."""

from typing import Literal, NamedTuple, get_args

import numpy as np

from tasks import stats
from tasks.checks import nearness
from tasks.errors import BadArtifact
from tasks.facts import Check, Cost, CostPart, Evidence, Finding, Metric, Outcome, Record, Unmeasured
from tasks.store import Store
from tasks.units import change, interval, ms, points, usd

Measured = Literal["baseline", "recommended", "passes, dearer", "undecided", "held", "slower", "inaccurate", "fell back", "screened"]
State = Literal[Measured, "unmeasured", "simulated"]
SCREENED: dict[str, State] = {"refused on accuracy": "inaccurate", "fell back": "fell back", "accurate, but": "slower"}

COUNTED = {"latency": "sample", "placement": "node", "validity": "process"}  # of accuracy: what a sample of the metric is


class Row(NamedTuple):
    """A cell with its numbers; None is unknown, never 0.

    Attributes:
        p99_ms: the upper estimate, None below the samples that p99 needs.
        accuracy: on evaluation data where it was judged, else on development data.
        apart: that accuracy less the baseline's on the same samples, so that both kinds of data can be compared.
        why: one sentence, empty for the baseline.
    """

    cell: str
    state: State
    outcome: Outcome
    p50_ms: float | None = None
    p99_ms: float | None = None
    per_s: float | None = None
    accuracy: float | None = None
    apart: float | None = None
    judged: bool = False
    cost: Cost | None = None
    why: str = ""


class Line(NamedTuple):
    """A check in words."""

    name: str
    verdict: Literal["pass", "fail", "unknown"]
    observed: str
    bounds: str
    limit: str
    size: str
    detail: str
    remedy: str


class Bill(NamedTuple):
    """One part of the cost per million, before and after; None where there is no price."""

    part: str
    before: CostPart | None
    after: CostPart | None

    @property
    def change(self) -> str:
        """In per cent; empty where there is nothing to compare with."""
        if self.before is None or self.after is None or not self.before.usd_per_million:
            return ""
        return change(float(self.after.usd_per_million), float(self.before.usd_per_million))

    @property
    def formula(self) -> str:
        """How the part came about; empty for the total and for what costs nothing."""
        part = self.after or self.before
        return part.how if part and part.usd_per_million and self.part != "total" else ""


def rows(record: Record, store: Store) -> list[Row]:
    """Every cell: the baseline, what is recommended, then by how far it came, cheapest first."""
    findings = {finding.cell_digest: finding for finding in record.decision.findings}
    costs = {cost.cell: cost for cost in record.costs}
    made = [_row(outcome, findings.get(outcome.cell.digest), costs.get(outcome.cell.name), record, store) for outcome in record.outcomes]
    made = [row._replace(apart=_apart(row, record, store)) for row in made]
    order = get_args(State)
    return sorted(made, key=lambda row: (order.index(row.state), row.cost.usd_per_million if row.cost else 0, row.cell))


def focus(record: Record) -> Finding | None:
    """The candidate that a reader asks about: the recommended one, or the one that came nearest."""
    if record.decision.recommended_digest:
        return next((f for f in record.decision.findings if f.cell_digest == record.decision.recommended_digest), None)
    judged = [finding for finding in record.decision.findings if finding.checks]
    priced = {cost.cell: cost for cost in record.costs}
    return min(judged, key=lambda finding: nearness(finding, priced), default=None)


def lines(finding: Finding, metric: Metric) -> list[Line]:
    """A finding's checks in words."""
    return [_line(check, metric) for check in finding.checks]


def bills(record: Record) -> list[Bill]:
    """Cost parts of the baseline beside those of the candidate in focus, the total last; empty when neither has a price."""
    costs, candidate = {cost.cell: cost for cost in record.costs}, focus(record)
    before = costs.get(record.request.baseline.name)
    after = costs.get(candidate.cell) if candidate else None
    parts = [{part.name: part for part in cost.parts} | {"total": _total(cost)} if cost else {} for cost in (before, after)]
    names = dict.fromkeys([name for part in parts for name in part if name != "total"] + ["total"])
    return [Bill(name, parts[0].get(name), parts[1].get(name)) for name in names] if before or after else []


def places(record: Record, store: Store) -> list[tuple[str, str]]:
    """Where to look, paths within the home, and the command that answers."""
    folder = f"records/{record.id}"
    found = [("home", f"{store.root}"), ("record", f"{folder}/record.json"), ("plots", f"{folder}/*.png")]
    candidate = focus(record)
    outcome = record.outcome(candidate.cell_digest) if candidate else None
    if isinstance(outcome, Evidence) and store.has(sha256 := outcome.engine.sha256):
        found.append(("engine", f"objects/{sha256[:2]}/{sha256[:12]}..."))
    found.append(("MLflow", f"experiment crossgrade/{record.model.id}, run {record.id}; crossgrade up shows it"))
    if record.status == "proposed":
        found.append(("answer", f'crossgrade approve {record.id} --as "YOUR NAME"'))
    return found


def headline(record: Record) -> str:
    """The status in capitals: what happened to the decision counts more than what it was."""
    return {"proposed": "PROPOSE", "held": "HOLD"}.get(record.status, record.status.upper())


def shown_usd(part: CostPart | None) -> str:
    """All six digits: the parts add up to the total as shown."""
    if part is None:
        return "no price"
    return f"${part.usd_per_million:,.6f}" if part.usd_per_million else "$0"


def _row(outcome: Outcome, finding: Finding | None, cost: Cost | None, record: Record, store: Store) -> Row:
    state = _state(outcome, finding, record)
    why = finding.reason.removeprefix("screen only: ") if finding else ""
    if isinstance(outcome, Unmeasured):
        return Row(outcome.cell.name, state, outcome, cost=cost, why=f"{outcome.stage}: {outcome.reason}")
    score = outcome.evaluation or outcome.development
    row = Row(outcome.cell.name, state, outcome, judged=outcome.evaluation is not None, cost=cost, why=why)
    try:
        latencies = [store.array(repeat.samples) for repeat in outcome.timing.repeats]
        accuracy = stats.value(score.metric, store.array(score.samples)) if score else None
    except BadArtifact:
        return row._replace(why=f"{why}; its samples are no longer in this store".strip("; "))
    both = [stats.estimate(np.concatenate(latencies) / 1e6, percentile) for percentile in (50, 99)]
    per_s = sum(map(len, latencies)) * 1e9 / max(sum(repeat.wall_ns for repeat in outcome.timing.repeats), 1)
    return row._replace(p50_ms=both[0].value, p99_ms=both[1].upper, per_s=per_s, accuracy=accuracy)


def _apart(row: Row, record: Record, store: Store) -> float | None:
    """The difference on the row's own split; None where the baseline was not scored on the same samples."""
    baseline = next((outcome for outcome in record.outcomes if outcome.cell == record.request.baseline), None)
    if row.accuracy is None or not isinstance(baseline, Evidence) or not isinstance(row.outcome, Evidence):
        return None
    own, other = (one.evaluation if row.judged else one.development for one in (row.outcome, baseline))
    if own is None or other is None or (own.metric, own.data, own.count) != (other.metric, other.data, other.count):
        return None
    return row.accuracy - stats.value(other.metric, store.array(other.samples)) if store.has(other.samples) else None


def _state(outcome: Outcome, finding: Finding | None, record: Record) -> State:
    if isinstance(outcome, Unmeasured):
        return "unmeasured"
    if outcome.cell == record.request.baseline:
        return "baseline"
    if outcome.cell.target.simulated:
        return "simulated"
    if outcome.cell.digest == record.decision.recommended_digest:
        return "recommended"
    if outcome.mode == "screen":
        return next((state for words, state in SCREENED.items() if finding and words in finding.reason), "screened")
    ends: dict[str, State] = {"propose": "passes, dearer", "hold": "held", "inconclusive": "undecided"}
    return ends[finding.verdict] if finding else "undecided"


def _line(check: Check, metric: Metric) -> Line:
    def told(value: float | None) -> str:
        return "" if value is None else _told(check, value, metric)

    bounds = ""
    if check.low is not None and check.high is not None:
        bounds = interval(check.low, check.high, metric) if check.name == "accuracy" else f"{told(check.low)} to {told(check.high)}"
    sign = {"accuracy": ">" if metric.higher_is_better else "<", "placement": ">="}.get(check.name, "<=")
    limit = f"{sign} {told(check.limit)}" if check.limit is not None else ""
    count = _counted(check.count, COUNTED.get(check.name, metric.unit)) if check.count is not None else ""
    return Line(check.name, check.verdict, told(check.observed), bounds, limit, count, check.detail, check.remedy)


def _counted(count: int, unit: str) -> str:
    return f"{count:,} {unit}" + ("" if count == 1 else "es" if unit.endswith("s") else "s")


def _told(check: Check, value: float, metric: Metric) -> str:
    if check.name == "accuracy":
        return points(value, metric)
    if check.name == "latency":
        return ms(value)
    if check.name == "cost":
        return usd(value)
    return f"{value:.1%}" if check.name == "placement" else f"{value:g}"


def _total(cost: Cost) -> CostPart:
    return CostPart(name="total", usd_per_million=cost.usd_per_million, low=cost.low, high=cost.high, how="the sum of the parts")
