"""The vocabulary: frozen facts with units in their names. Stages meet only here.

A fact is immutable, refuses fields it does not know, refuses infinities, and has a digest. One class is the Prefect parameter
with its form, the JSON in the record and the JSON Schema. Percentiles, means and savings are functions (`tasks.stats`), never fields.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from datetime import date, datetime
from decimal import Decimal
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")]  # safe as a file name and as a label
Precision = Literal["fp32", "fp16", "bf16", "fp8", "int8", "int4"]
Mode = Literal["screen", "valid"]
Verdict = Literal["propose", "hold", "inconclusive"]


class Fact(BaseModel):
    """Base of every fact."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, ignored_types=(cached_property,))

    @cached_property
    def digest(self) -> str:
        """sha256 of the canonical JSON: equal facts have equal digests, on every machine."""
        return digest_of(self.model_dump(mode="json"))

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy with changes, whose digest is its own: pydantic would copy the cached one."""
        copied = super().model_copy(update=update, deep=deep)
        copied.__dict__.pop("digest", None)
        return copied

    def __hash__(self) -> int:
        return hash(self.digest)  # fields may be dicts, which have no hash of their own


def digest_of(value: object) -> str:
    """sha256 of a JSON value with sorted keys and no spaces."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()).hexdigest()


# ------------------------------------------------------------------------------------------------ what a model is


class TensorSpec(Fact):
    """One input or output: a string in `shape` is a dynamic dimension."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]


class Metric(Fact):
    """How a model is scored: a ratio of sums over samples, `transform(sum(numerator) / sum(denominator))`.

    Top-1 has denominator 1; F1 is 2TP / (2TP + FP + FN); CER is edits / characters; perplexity is exp(nll / tokens). So each
    sample is a pair of numbers, samples can be paired between two engines, and one bootstrap serves all metrics.
    """

    name: str
    unit: str = Field(description="what one sample is: image, clip, pair, line, window, user")
    higher_is_better: bool = True
    transform: Literal["identity", "exp"] = "identity"
    proportion: bool = Field(False, description="every sample is right (1, 1) or wrong (0, 1)")
    fidelity: bool = Field(False, description="agreement with the FP32 model, not accuracy: it can never approve a migration")


class ModelSpec(Fact):
    """A model of the zoo or of a user."""

    id: Name
    title: str
    task: str
    request: str = Field(description="what one inference serves, for people: '1 s of audio', '1 image'")
    source: str = Field(description="where the weights come from")
    license: str
    data_source: str
    data_license: str
    terms: str = Field("", description="data or weight terms that must be shown before use")
    files: dict[str, Sha256] = Field(default_factory=dict, description="pinned source files and their sha256")
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[str, ...]
    metric: Metric
    has_torch: bool = Field(True, description="a torch module exists, so pt2 backends and torch eager can run it")
    parameters: int | None = None


# ------------------------------------------------------------------------------------------------ what is asked for


class Recipe(Fact):
    """How the precision is lowered. `backends` names those it makes sense for; empty means all that can."""

    name: Name
    precision: Precision = "fp32"
    method: Literal["none", "cast", "dynamic", "static", "weight_only", "qat"] = "none"
    toolkit: Literal["none", "onnxruntime", "nncf"] = "none"
    per_channel: bool = False
    calibration: Literal["none", "minmax", "entropy", "percentile"] = "none"
    calibration_items: int = Field(0, ge=0, le=100_000)
    operators: tuple[str, ...] = Field((), description="ONNX operators that are quantized; empty means the toolkit's default")
    keep_sensitive: int = Field(
        0, ge=0, le=16, exclude_if=lambda count: count == 0,
        description="nodes that stay FP32: those whose quantization alone changes the outputs most, on calibration data",
    )  # fmt: skip
    backends: tuple[str, ...] = ()
    note: str = ""


class Simulation(Fact):
    """What a simulated device does. Times are host to host; faults default to none."""

    step_us: dict[Precision, float] = Field(description="mean service time of one request at batch 1, microseconds")
    noise: float = Field(0.02, ge=0, le=1, description="relative standard deviation of a step")
    drift_per_s: float = Field(0.0, description="relative slow-down for each second of load")
    throttle_after_s: float | None = Field(None, description="the device throttles to half speed after that many seconds")
    slow_share: float = Field(0.0, ge=0, le=1, description="share of steps that take ten times as long: a tail")
    fallback: tuple[str, ...] = Field((), description="operators that the device silently gives back to the CPU")
    output_error: dict[Precision, float] = Field(default_factory=dict, description="relative error added to outputs")
    fault: Literal["none", "crash", "hang", "nan"] = "none"
    seed: int = 0


class Target(Fact):
    """A device that is rented or owned under a name and a price."""

    name: Name
    title: str
    vendor: str
    arch: str = Field(description="sm_89, gfx942, x86_64-avx512vnni, x86_64")
    device: str = Field("cpu", description="cpu, or cuda:0 and the like")
    threads: int = Field(1, ge=1, description="cores the runtime may use; the measuring process is pinned to so many")
    memory_gib: float = Field(gt=0)
    provider: str
    instance_type: str
    region: str
    tier: Literal["on_demand", "spot", "reserved", "owned"] = "on_demand"
    work_pool: Name
    simulation: Simulation | None = None

    @property
    def lease(self) -> str:
        """What is held while this target is measured: a simulated device keeps a core of its host busy, so it takes the processor."""
        return "cpu" if self.simulated else self.device

    @property
    def simulated(self) -> bool:
        """A simulated target proves the gates; what it makes can never be approved."""
        return self.simulation is not None


class Workload(Fact):
    """How a cell is timed. `screen` ranks in seconds; only `valid` may decide."""

    scenario: Literal["single_stream"] = "single_stream"
    mode: Mode = "valid"
    batch: int = Field(1, ge=1)
    warmup_iterations: int = Field(10, ge=1)
    warmup_ms: float = Field(200, ge=0)
    min_samples: int = Field(662, ge=1, description="in all repeats together; 662 let p99 decide")
    min_duration_s: float = Field(1.0, gt=0, description="in each repeat")
    max_duration_s: float = Field(60.0, gt=0, description="in each repeat; what was sampled until then is kept")
    repeats: int = Field(5, ge=1, description="fresh processes")


class Cell(Fact):
    """One square of the matrix: model x recipe x backend x target."""

    model: Name
    recipe: Recipe
    backend: Name
    target: Target

    @property
    def name(self) -> str:
        """For people: backend/recipe@target."""
        return f"{self.backend}/{self.recipe.name}@{self.target.name}"


class Slo(Fact):
    """The service level objective that a candidate must meet."""

    model_config = ConfigDict(title="Service level objective")
    percentile: Literal[50, 90, 95, 99] = Field(99, title="Percentile", description="which percentile of latency must meet the limit")
    latency_ms: float = Field(50.0, gt=0, le=3_600_000, title="Latency limit (ms)", description="host to host, at batch 1")


class Margin(Fact):
    """How much worse a metric may be: 'points' in the metric's unit (0.01 of F1 is one point), 'relative' as a share of the baseline."""

    value: float = Field(gt=0)
    unit: Literal["points", "relative"]


class Policy(Fact):
    """What a decision needs to be made. Named in deployments/policies.toml."""

    name: Name
    title: str = ""
    margin: Margin
    margins: dict[str, Margin] = Field(default_factory=dict, description="by metric name, before `margin`")
    confidence: float = Field(0.95, ge=0.8, le=0.9999)
    min_saving: float = Field(0.1, ge=0, lt=1, description="share of the baseline's cost per million that must surely be saved")
    utilisation: float = Field(0.5, ge=0.001, le=1, description="mean share of a device's capacity that carries load")
    max_price_age_days: int = Field(365, ge=0, le=36_525)
    max_evidence_age_days: int = Field(30, ge=0, le=36_525)
    min_share_on_device: float = Field(1.0, ge=0, le=1, description="share of graph nodes that the intended engine must run")
    finalists: int = Field(1, ge=1, description="recipes per target that go from screen to valid")
    screen: Workload = Workload(mode="screen", min_samples=64, min_duration_s=0.2, max_duration_s=10, warmup_ms=100, repeats=1)
    valid: Workload = Workload()
    migration_usd: Decimal = Field(Decimal(0), ge=0, le=10**12, description="one-off cost of the change, engineering included")
    amortise_millions: Decimal = Field(
        Decimal(1000), ge=Decimal("0.001"), le=10**12, description="over how many millions of inferences it is spread"
    )

    @model_validator(mode="after")
    def _measured_as_meant(self) -> Self:
        """What is fed is one request at a time: a cost by another batch would be wrong by that factor."""
        for mode, workload in (("screen", self.screen), ("valid", self.valid)):
            if workload.batch != 1:
                raise ValueError(f"{mode}.batch is {workload.batch}: only batch 1 is measured in this version")
            if workload.mode != mode:
                raise ValueError(f'{mode}.mode is {workload.mode}: write mode = "{mode}", a screen never decides')
        return self

    def margin_for(self, metric: Metric) -> Margin:
        """The margin of a metric: its own, or the policy's."""
        return self.margins.get(metric.name, self.margin)


class Request(Fact):
    """One migration, as asked for: names are resolved, so the same words mean the same for ever."""

    model: Name
    model_digest: Sha256 = Field(description="of the ModelSpec: another model under the same name is another request")
    baseline: Cell
    candidates: tuple[Cell, ...]
    slo: Slo
    policy: Policy


# ------------------------------------------------------------------------------------------------ what was made


class Artifact(Fact):
    """A stored file and where it came from. Lineage is a walk over `parent`."""

    kind: Literal["weights", "data", "exported", "quantized", "engine"]
    format: str = Field(description="onnx, pt2, safetensors, npz, openvino, aoti, ...")
    sha256: Sha256
    size_bytes: int
    parent: Sha256 | None = None
    tools: dict[str, str] = Field(default_factory=dict, description="distribution -> version")
    seconds: float = Field(0.0, ge=0, description="wall time it took to make")
    notes: dict[str, str] = Field(
        default_factory=dict, description="what was done: operators quantized, parity, exporter, calibration sha256"
    )


class Host(Fact):
    """The machine and software a number came from."""

    hostname: str
    cpu: str
    arch: str
    cores: int
    memory_gib: float
    os: str
    kernel: str
    python: str
    packages: dict[str, str]
    accelerator: str = ""
    driver: str = ""


# ------------------------------------------------------------------------------------------------ what was seen


class Repeat(Fact):
    """One fresh process's samples: `samples` is a stored int64 .npy of nanoseconds, in order."""

    samples: Sha256
    count: int = Field(ge=0)
    wall_ns: int = Field(ge=0, description="time inside the boundary: requests one after the other, without the staging of inputs")
    warmup_dropped: int = Field(ge=0)
    load_s: float = Field(ge=0, description="opening the engine")
    first_inference_ms: float = Field(ge=0)
    peak_rss_bytes: int = Field(ge=0)
    started: datetime
    foreign_cores: float | None = Field(
        None, ge=0, exclude_if=lambda cores: cores is None, description="cores' worth of work that others did on this process's cores"
    )
    warnings: tuple[str, ...] = ()


class Timing(Fact):
    """Latency of a cell. Timings with different boundaries are never compared."""

    boundary: Literal["host_to_host", "device_compute"] = "host_to_host"
    workload: Workload
    repeats: tuple[Repeat, ...]
    harness: Sha256 = Field(description="digest of the measuring code: numbers from another harness are not compared")


class Placement(Fact):
    """What a runtime really did with the graph, read back after opening."""

    device: str
    providers: tuple[str, ...] = ()
    precision: str = Field(description="what the runtime says it executes in")
    threads: int = Field(ge=1)
    nodes: int | None = None
    nodes_elsewhere: int | None = None
    elsewhere: tuple[str, ...] = Field((), description="operators that did not run where they should")

    @property
    def share_on_device(self) -> float | None:
        """Share of graph nodes on the intended engine; None where the runtime cannot tell."""
        if not self.nodes or self.nodes_elsewhere is None:
            return None
        return 1 - self.nodes_elsewhere / self.nodes


class Score(Fact):
    """Accuracy of one engine on one split. `samples` is a stored float64 .npy of shape (count, 2): numerator, denominator."""

    metric: Metric
    split: Literal["development", "evaluation"]
    engine: Sha256
    data: Sha256 = Field(description="digest over the split's sample hashes")
    calibration: Sha256 | None = Field(None, description="digest over the calibration split, proven disjoint")
    samples: Sha256
    count: int = Field(gt=0)


class Evidence(Fact):
    """All that is known of a measured cell."""

    kind: Literal["evidence"] = "evidence"
    cell: Cell
    engine: Artifact
    lineage: tuple[Artifact, ...] = Field(description="from the engine's parent back to weights")
    placement: Placement
    timing: Timing
    development: Score | None = None
    evaluation: Score | None = None
    host: Host
    measured: datetime

    @property
    def mode(self) -> Mode:
        """screen or valid: a screen result can never be approved."""
        return self.timing.workload.mode


class Unmeasured(Fact):
    """A cell that has no numbers, and why: never 0, inf or an empty square."""

    kind: Literal["unmeasured"] = "unmeasured"
    cell: Cell
    stage: Literal["plan", "export", "quantize", "build", "score", "measure"]
    reason: str


Outcome = Annotated[Evidence | Unmeasured, Field(discriminator="kind")]


# ------------------------------------------------------------------------------------------------ money


class Quote(Fact):
    """A price with its source and date."""

    provider: str
    instance_type: str
    region: str
    tier: Literal["on_demand", "spot", "reserved", "owned"]
    per_hour: Decimal = Field(gt=0, le=10**6, description="dollars")
    currency: Literal["USD"] = "USD"
    source: str
    as_of: date


class CostPart(Fact):
    """One line of a cost per million; an interval where the part depends on a measured rate."""

    name: str
    usd_per_million: Decimal
    low: Decimal
    high: Decimal
    how: str = Field(description="the formula with its numbers, for a person")


class Cost(Fact):
    """Cost of a million inferences; the parts sum to the total, to the cent."""

    cell: str
    quote: Quote
    parts: tuple[CostPart, ...]

    @property
    def usd_per_million(self) -> Decimal:
        return sum((p.usd_per_million for p in self.parts), Decimal(0))

    @property
    def low(self) -> Decimal:
        return sum((p.low for p in self.parts), Decimal(0))

    @property
    def high(self) -> Decimal:
        return sum((p.high for p in self.parts), Decimal(0))


# ------------------------------------------------------------------------------------------------ what was decided


class Check(Fact):
    """One gate: what was observed, in which interval, against which limit."""

    name: Literal["accuracy", "latency", "cost", "placement", "numerics", "validity"]
    verdict: Literal["pass", "fail", "unknown"]
    observed: float | None = None
    low: float | None = None
    high: float | None = None
    limit: float | None = None
    unit: str = ""
    count: int | None = Field(None, description="samples behind the number")
    detail: str = Field(description="one sentence for a person")
    remedy: str = Field("", description="what to do about it, or what is missing")


class Finding(Fact):
    """The verdict on one candidate."""

    cell: str
    cell_digest: Sha256
    verdict: Verdict
    checks: tuple[Check, ...]
    reason: str


class Decision(Fact):
    """What is proposed, bound to the evidence by digest."""

    verdict: Verdict
    recommended: str | None = Field(None, description="name of the cell")
    recommended_digest: Sha256 | None = None
    findings: tuple[Finding, ...]
    summary: str
    missing: tuple[str, ...] = Field((), description="what an inconclusive decision still needs")
    evidence: Sha256 = Field(description="digest over request, outcomes and costs: what an approval is bound to")


def evidence_digest(request: Request, outcomes: Iterable["Evidence | Unmeasured"], costs: Iterable[Cost]) -> str:
    """What a decision and its approval are bound to; the order of outcomes and costs does not matter."""
    return digest_of([request.digest, sorted(outcome.digest for outcome in outcomes), sorted(cost.digest for cost in costs)])


class Approval(Fact):
    """A person's word on a decision."""

    decision: Sha256 = Field(description="digest of the Decision that was shown")
    answer: Literal["approve", "reject", "reopen"]
    approver: str = Field(min_length=2, max_length=200)
    comment: str = Field("", max_length=4000)
    at: datetime
    via: str = Field("cli", description="cli, prefect, nightly")


class Night(Fact):
    """What a nightly run found about an approved migration."""

    record: Name
    at: datetime
    verdict: Literal["same", "faster", "slower", "ambiguous", "broken"]
    ratio: float | None = Field(None, description="champion's rate over the baseline's, tonight over then: 0.9 is 10% slower")
    low: float | None = None
    high: float | None = None
    detail: str
    changes: tuple[str, ...] = Field((), description="what differs between then and now: driver, library, compiler, host")
    decision: Decision
    outcomes: tuple[Outcome, ...]


Status = Literal["proposed", "held", "inconclusive", "approved", "rejected", "reopened"]
STATUS: dict[str, Status] = {
    "propose": "proposed", "hold": "held", "inconclusive": "inconclusive",
    "approve": "approved", "reject": "rejected", "reopen": "reopened",
}  # fmt: skip


class Record(Fact):
    """The truth of one migration; MLflow holds a copy. Written by `tasks.record`, read by `tasks.schema`."""

    version: int
    id: Name
    created: datetime
    model: ModelSpec
    request: Request
    outcomes: tuple[Outcome, ...]
    costs: tuple[Cost, ...]
    decision: Decision
    approvals: tuple[Approval, ...] = ()
    supersedes: str | None = None

    @property
    def status(self) -> Status:
        """Where the migration stands now."""
        return STATUS[self.approvals[-1].answer if self.approvals else self.decision.verdict]

    def outcome(self, cell_digest: str) -> "Evidence | Unmeasured":
        """The outcome of a cell by the cell's digest; KeyError when it is not in the record."""
        for outcome in self.outcomes:
            if outcome.cell.digest == cell_digest:
                return outcome
        raise KeyError(cell_digest)
