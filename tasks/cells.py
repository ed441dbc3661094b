"""One cell, step by step: what a sweep runs. Each step is a child process, so that a crash or a hang ends that cell alone.

prepare   export, quantize, build, score on development data, and the requests it will be timed with
clock     time one or several cells, repeats taken in turn
judge     score on evaluation data, once, for those that may be proposed
"""

import logging
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from pydantic import Field

from tasks import child
from tasks.errors import BadModel, Terminal
from tasks.facts import Artifact, Cell, Evidence, Fact, Score, Sha256, Unmeasured, Workload, digest_of
from tasks.host import fingerprint
from tasks.optional import version_of
from tasks.store import Store, sha256_of

if TYPE_CHECKING:
    from model_zoo.facts import Entry

log = logging.getLogger("crossgrade")
PREPARE_TIMEOUT_S = 1800  # the longest build seen here takes 40 s; a compiler that hangs must end
TOOLS = ("torch", "onnx", "onnxscript", "onnxruntime", "nncf", "numpy", "transformers")  # what export, quantization and data rest on
REQUESTS = 16  # different feeds that a measurement rotates over, so that no cache serves a single one


class Prepared(Fact):
    """A cell that is ready to be timed."""

    kind: Literal["prepared"] = "prepared"
    cell: Cell
    engine: Artifact
    lineage: tuple[Artifact, ...]
    development: Score
    feeds: Sha256


class Readiness(Fact):
    """What became of preparing a cell."""

    outcome: Annotated[Prepared | Unmeasured, Field(discriminator="kind")]


def prepare(cell: Cell, model: str, store: Store) -> Prepared | Unmeasured:
    """Everything before the stopwatch, from the cache where nothing changed.

    Args:
        model: digest of the model's spec when the migration was planned.
    """
    key = _identity(cell, model)
    if (known := store.find("prepared", key, Prepared)) is not None:
        return known.model_copy(update={"cell": cell})  # the same work under another target's name and price
    argument = {"cell": cell.model_dump(mode="json"), "model": model, "store": str(store.root)}
    try:
        outcome = child.call("tasks.cells:prepare_here", argument, Readiness, timeout_s=PREPARE_TIMEOUT_S).outcome
    except Terminal as error:
        outcome = Unmeasured(cell=cell, stage="build", reason=str(error))
    if isinstance(outcome, Unmeasured):
        log.info("%s: not measured, %s failed: %s", cell.name, outcome.stage, outcome.reason)
        return outcome
    return store.cached("prepared", key, Prepared, lambda: outcome)


def _identity(cell: Cell, model: str) -> dict[str, Any]:
    """Everything that could change what preparing a cell makes: model and data, recipe, runtime, this machine, our code."""
    from tasks.backends import backend

    target = cell.target
    return {
        "model": model,
        "recipe": cell.recipe.digest,
        "backend": cell.backend,
        "target": [target.arch, target.device, target.threads, target.simulation and target.simulation.digest],
        "versions": {name: version_of(name) for name in (*TOOLS, *backend(cell.backend).distributions)},
        "host": fingerprint(),
        "code": _code(),
    }


@cache
def _code() -> str:
    """Digest of our own sources: no result of older code is taken for one of the newer."""
    root = Path(__file__).resolve().parent.parent
    return digest_of([sha256_of(path) for folder in ("tasks", "model_zoo") for path in sorted((root / folder).rglob("*.py"))])


def prepare_here(argument: dict) -> Readiness:
    """`prepare` inside the child: the chain of stages, and which of them stopped it."""
    from tasks.backends import backend
    from tasks.build import build
    from tasks.export import export
    from tasks.measure import store_feeds
    from tasks.measure.accuracy import score
    from tasks.quantize import quantize

    cell, store = Cell.model_validate(argument["cell"]), Store(Path(argument["store"]))
    if reason := backend(cell.backend).missing(cell):
        return Readiness(outcome=Unmeasured(cell=cell, stage="plan", reason=reason))
    stage: Literal["export", "quantize", "build", "score"] = "export"
    try:
        entry = _unchanged(cell.model, argument["model"])
        exported = export(entry, backend(cell.backend).wants, store)
        stage = "quantize"
        quantized = quantize(entry, exported, cell.recipe, store)
        stage = "build"
        engine = build(quantized, cell, store)
        stage = "score"
        development = score(entry, engine, cell, "development", store)
        feeds = store_feeds(entry.requests(store, 1, REQUESTS), store)
    except Terminal as error:
        return Readiness(outcome=Unmeasured(cell=cell, stage=stage, reason=str(error)))
    lineage = tuple(dict.fromkeys((quantized, exported)))
    return Readiness(outcome=Prepared(cell=cell, engine=engine, lineage=lineage, development=development, feeds=feeds))


def _unchanged(name: str, model: str) -> "Entry":
    """The model's entry, as it was when the migration was planned."""
    from model_zoo import entry

    found = entry(name)
    if found.spec.digest != model:
        raise BadModel(f"{name} was changed while it was being migrated", "start the migration again")
    return found


def clock(ready: Sequence[Prepared], workload: Workload, store: Store) -> list[Evidence | Unmeasured]:
    """Time the cells, repeats in turn so that a disturbance meets them all. A cell whose process dies is tried once more, alone."""
    from tasks.measure import Job, measure

    jobs = [Job(engine=one.engine, cell=one.cell, workload=workload, feeds=one.feeds) for one in ready]
    outcomes = measure(jobs, store)
    outcomes = [measure([job], store)[0] if isinstance(out, Unmeasured) else out for job, out in zip(jobs, outcomes, strict=True)]
    return [
        out
        if isinstance(out, Unmeasured)
        else Evidence(
            cell=one.cell,
            engine=one.engine,
            lineage=one.lineage,
            placement=out.placement,
            timing=out.timing,
            development=one.development,
            host=out.host,
            measured=out.measured,
        )
        for one, out in zip(ready, outcomes, strict=True)
    ]


def judge(evidence: Evidence, model: str, store: Store) -> Evidence | Unmeasured:
    """Add the score on evaluation data: of the very engine that was timed, on the same device."""
    facts = {"cell": evidence.cell.model_dump(mode="json"), "engine": evidence.engine.model_dump(mode="json")}
    argument = {**facts, "model": model, "store": str(store.root)}

    def make() -> Score:
        return child.call("tasks.cells:judge_here", argument, Score, timeout_s=PREPARE_TIMEOUT_S)

    try:
        score = store.cached("judged", [evidence.engine.sha256, _identity(evidence.cell, model)], Score, make)
    except Terminal as error:
        return Unmeasured(cell=evidence.cell, stage="score", reason=str(error))
    return evidence.model_copy(update={"evaluation": score})


def judge_here(argument: dict) -> Score:
    """`judge` inside the child."""
    from tasks.measure.accuracy import score

    cell, engine = Cell.model_validate(argument["cell"]), Artifact.model_validate(argument["engine"])
    return score(_unchanged(cell.model, argument["model"]), engine, cell, "evaluation", Store(Path(argument["store"])))


class Steps(NamedTuple):
    """The steps as a sweep calls them: plain functions, or the same as Prefect tasks (`tasks.stages`)."""

    prepare: Callable[[Cell, str, Store], Prepared | Unmeasured] = prepare
    clock: Callable[[Sequence[Prepared], Workload, Store], list[Evidence | Unmeasured]] = clock
    judge: Callable[[Evidence, str, Store], Evidence | Unmeasured] = judge
