"""Evidence made up of numbers we chose, with real objects in a store: what the decision, the record and the reports are tested on."""

from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np

from tasks.decide import decide
from tasks.facts import (
    Artifact,
    Cell,
    Cost,
    Evidence,
    Host,
    Outcome,
    Placement,
    Policy,
    Quote,
    Record,
    Repeat,
    Request,
    Score,
    Slo,
    Timing,
    Unmeasured,
    Workload,
)
from tasks.price import cost
from tasks.screen import rate_per_s
from tasks.store import Store
from tests.builders import TOP1, a_cell, a_policy, a_target, tiny_entry

WHEN = datetime(2026, 11, 30, 11, 45, tzinfo=UTC)
SPEC = tiny_entry().spec
HOST = Host(
    hostname="bench-1",
    cpu="AMD EPYC 9R14",
    arch="x86_64",
    cores=2,
    memory_gib=4,
    os="Linux",
    kernel="6.1",
    python="3.11",
    packages={"onnxruntime": "1.31.1"},
)
TWO_CORES = a_target(name="cpu-2core", title="2 cores", threads=2, memory_gib=4, instance_type="c7a.large", work_pool="cpu-2core")
ONE_CORE = a_target()
BASELINE = a_cell(target=TWO_CORES)
INT8 = a_cell(recipe="int8-static-conv", target=ONE_CORE)
PRICES = {"c7a.large": "0.10264", "c7a.medium": "0.05132", "g6.xlarge": "0.8048"}


def an_engine(cell: Cell, store: Store) -> Artifact:
    """A stored file that stands for the cell's engine."""
    data = f"engine of {cell.name}".encode()
    return Artifact(kind="engine", format="onnx", sha256=store.put(data), size_bytes=len(data), tools={"onnxruntime": "1.31.1"})


def a_score(store: Store, engine: Artifact, right: int, count: int = 4000, split: str = "evaluation", **changes: Any) -> Score:
    """`right` of `count` samples are right: the first ones, so that two scores agree wherever they can."""
    pairs = np.stack([np.arange(count) < right, np.ones(count)], axis=1).astype(np.float64)
    values: dict[str, Any] = {"metric": TOP1, "split": split, "engine": engine.sha256, "samples": store.put_array(pairs), "count": count}
    values |= {"data": ("e" if split == "evaluation" else "d") * 64, "calibration": "c" * 64}
    return Score(**(values | changes))


def a_timing(store: Store, median_ms: float, workload: Workload, samples: int = 200, **changes: Any) -> Timing:
    """Every repeat holds `samples` latencies around the median with a tail; no two repeats are alike."""
    repeats = []
    for turn in range(workload.repeats):
        noise = np.random.default_rng(turn).lognormal(0, 0.05, samples)
        latencies = (median_ms * 1e6 * noise).astype(np.int64)
        repeats.append(
            Repeat(
                samples=store.put_array(latencies),
                count=samples,
                wall_ns=int(latencies.sum()),
                warmup_dropped=20,
                load_s=0.1,
                first_inference_ms=3 * median_ms,
                peak_rss_bytes=150_000_000,
                started=WHEN,
                **changes,
            )
        )
    return Timing(workload=workload, repeats=tuple(repeats), harness="a" * 64)


def evidence(
    store: Store, cell: Cell, median_ms: float, right: int = 3900, *, mode: str = "valid", samples: int = 200, **changes: Any
) -> Evidence:
    """A measured cell; a screened one has no score on evaluation data."""
    engine, policy = an_engine(cell, store), a_policy()
    values: dict[str, Any] = {
        "cell": cell,
        "engine": engine,
        "lineage": (),
        "placement": Placement(
            device=cell.target.device,
            providers=("CPUExecutionProvider",),
            precision=cell.recipe.precision,
            threads=cell.target.threads,
            nodes=40,
            nodes_elsewhere=0,
        ),
        "timing": a_timing(store, median_ms, policy.valid if mode == "valid" else policy.screen, samples),
        "development": a_score(store, engine, right // 4, 1000, "development"),
        "evaluation": a_score(store, engine, right) if mode == "valid" else None,
        "host": HOST,
        "measured": WHEN,
    }
    return Evidence(**(values | changes))


def a_request(candidates: Sequence[Cell] = (INT8,), *, policy: Policy | None = None, limit_ms: float = 50) -> Request:
    """The baseline on two cores against some candidates."""
    return Request(
        model=SPEC.id,
        model_digest=SPEC.digest,
        baseline=BASELINE,
        candidates=tuple(candidates),
        slo=Slo(latency_ms=limit_ms),
        policy=policy or a_policy(),
    )


def a_quote(instance_type: str) -> Quote:
    """The shipped price of an instance."""
    return Quote(
        provider="aws",
        instance_type=instance_type,
        region="us-east-1",
        tier="on_demand",
        per_hour=Decimal(PRICES[instance_type]),
        source="a price list",
        as_of=date(2026, 7, 20),
    )


def costs_of(request: Request, outcomes: Sequence[Outcome]) -> list[Cost]:
    """The cost of every measured cell, the rate known to 2%."""
    costs = []
    for outcome in outcomes:
        if isinstance(outcome, Evidence):
            rate, quote = rate_per_s(outcome), a_quote(outcome.cell.target.instance_type)
            first = outcome.cell == request.baseline
            costs.append(cost(outcome.cell, rate, rate * 0.98, rate * 1.02, quote, request.policy, baseline=first))
    return costs


def matrix(store: Store) -> tuple[Request, list[Outcome], list[Cost]]:
    """A whole migration: a baseline, a winner, one refused on accuracy, one slower, one that cannot be built, one simulated."""
    dynamic, static = a_cell(recipe="int8-dynamic", target=ONE_CORE), a_cell(recipe="int8-static", target=ONE_CORE)
    vino, simulated = a_cell("openvino", "int8-nncf", ONE_CORE), a_cell("simulated", "int8-static")
    request = a_request((INT8, dynamic, static, vino, simulated))
    outcomes: list[Outcome] = [
        evidence(store, BASELINE, 2.1),
        evidence(store, INT8, 0.6, right=3896),
        evidence(store, dynamic, 0.5, right=400, mode="screen"),
        evidence(store, static, 1.4, mode="screen"),
        Unmeasured(cell=vino, stage="quantize", reason="nncf 3.1.0 cannot quantize If (node /If_0): use a recipe of onnxruntime"),
        evidence(store, simulated, 0.15),
    ]
    return request, outcomes, costs_of(request, outcomes)


def a_record(store: Store, record_id: str = "20261130-114500-digits-cnn-1f3a9c", **changes: Any) -> Record:
    """The record of `matrix`."""
    request, outcomes, costs = matrix(store)
    decision = decide(request, outcomes, costs, {}, store)
    values = {"version": 1, "id": record_id, "created": WHEN, "model": SPEC, "request": request, "outcomes": tuple(outcomes)}
    return Record(**(values | {"costs": tuple(costs), "decision": decision} | changes))
