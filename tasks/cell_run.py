"""What MLflow is told of one cell: parameters to compare by, metrics with units in their names, raw samples as an artifact.

The dictionary of names is mlflow/dictionary.md.
"""

import math
from pathlib import Path

import numpy as np

from tasks.facts import Evidence, Record, Score
from tasks.report.rows import Row
from tasks.store import Store

MIB = 2**20


def params_of(row: Row, record: Record) -> dict[str, str]:
    """On every child run, measured or not: a parameter that some runs lack makes parallel coordinates useless."""
    cell = row.outcome.cell
    finding = next((finding for finding in record.decision.findings if finding.cell_digest == cell.digest), None)
    evidence = row.outcome if isinstance(row.outcome, Evidence) else None
    return {
        "backend": cell.backend,
        "recipe": cell.recipe.name,
        "precision": cell.recipe.precision,
        "method": cell.recipe.method,
        "target": cell.target.name,
        "instance_type": cell.target.instance_type,
        "threads": str(cell.target.threads),
        "mode": evidence.mode if evidence else "none",
        "state": row.state,
        "verdict": finding.verdict if finding else "baseline",
    }


def metrics_of(row: Row, record: Record, store: Store) -> dict[str, float]:
    """Numbers that are known; what is unknown has no metric, never 0."""
    found: dict[str, float | None] = {"p50_ms": row.p50_ms, "p99_upper_ms": row.p99_ms, "throughput_per_s": row.per_s}
    if row.cost:
        cost = row.cost
        found |= {"usd_per_million": float(cost.usd_per_million), "usd_per_million_low": float(cost.low)}
        found |= {"usd_per_million_high": float(cost.high)}
    if isinstance(evidence := row.outcome, Evidence):
        repeats, name = evidence.timing.repeats, record.model.metric.name
        found |= {
            name: _value(evidence.evaluation, store),
            f"{name}_development": _value(evidence.development, store),
            "first_inference_ms": max(repeat.first_inference_ms for repeat in repeats),
            "load_s": max(repeat.load_s for repeat in repeats),
            "peak_rss_mib": max(repeat.peak_rss_bytes for repeat in repeats) / MIB,
            "engine_mib": evidence.engine.size_bytes / MIB,
            "build_s": evidence.engine.seconds,
            "share_on_device": evidence.placement.share_on_device,
            "latency_samples": sum(repeat.count for repeat in repeats),
            "repeats": len(repeats),
        }
    return {name: float(value) for name, value in found.items() if value is not None and math.isfinite(value)}


def write_samples(evidence: Evidence, store: Store, path: Path) -> Path | None:
    """Raw samples as one compressed .npz: latency_ns_0 .. of each process, and a score's (numerator, denominator) pairs."""
    arrays = {f"latency_ns_{turn}": repeat.samples for turn, repeat in enumerate(evidence.timing.repeats)}
    arrays |= {f"score_{score.split}": score.samples for score in (evidence.development, evidence.evaluation) if score}
    if not all(store.has(sha256) for sha256 in arrays.values()):
        return None
    np.savez_compressed(path, **{name: store.array(sha256) for name, sha256 in arrays.items()})  # type: ignore[arg-type]
    return path


def _value(score: Score | None, store: Store) -> float | None:
    from tasks import stats

    return stats.value(score.metric, store.array(score.samples)) if score and store.has(score.samples) else None
