"""The main path: a model from what serves it today to a decision that a person can approve.

    request ─> per target: prepare, screen, measure, judge ─> price ─> decide ─> record ─> approve

`migration` is the story. The CLI runs it in this process; the Prefect flow sends each target's share to where its device is.
"""

from asyncio import gather
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from prefect import flow
from prefect.client.schemas.objects import State
from prefect.states import Completed

from flows import report
from flows.forms import LOCAL, BackendName, Backends, Baseline, CostPolicy, Model, PolicyName, RecipeName, Recipes, Targets
from flows.sweep import by_worker, sweep_target
from model_zoo import entry
from tasks import journal, record
from tasks.catalog import Ask, plan, prices
from tasks.decide import decide
from tasks.facts import Record, Slo
from tasks.journal import Attempt
from tasks.price.evidence import price
from tasks.store import Store

Sweep = Callable[[Attempt, str], Awaitable[None]]
ENDS = {"propose": "Proposed", "hold": "Held", "inconclusive": "Inconclusive"}


async def migration(ask: Ask, store: Store, sweep: Sweep) -> Record:
    """Take a model through every cell that was asked for, decide, and write the record. Resumes what a crash left.

    Raises BadRequest, NoQuote and the other errors of `tasks.errors` before anything is measured, where it can.
    """
    spec = entry(ask.model).spec
    request = plan(ask, spec, datetime.now(UTC).date())
    with journal.begin(request, store) as attempt:
        home, *others = dict.fromkeys(cell.target.name for cell in (request.baseline, *request.candidates))
        await sweep(attempt, home)  # the baseline first: what the others are compared with
        await gather(*(sweep(attempt, target) for target in others))
        outcomes = attempt.outcomes()
        costs, no_quotes = price(request, outcomes, prices(), store, attempt.started.date())
        decision = decide(request, outcomes, costs, no_quotes, store)
        done = record.write(record.new(spec, request, outcomes, costs, decision, store, attempt.started), store)
        report.deliver(done, store)  # plots and MLflow; a server that is away loses nothing
        attempt.close()
    return done


async def in_this_process(attempt: Attempt, target: str) -> None:
    """Sweep a target here: the CLI's way, without servers."""
    sweep_target(attempt, target)


@flow(name="migrate", flow_run_name="migrate {model.value}", persist_result=False)
async def migrate(
    model: Model,
    baseline: Baseline = Baseline(),
    targets: Targets = LOCAL,
    backends: Backends = [*BackendName][1:],
    recipes: Recipes = [*RecipeName],
    slo: Slo = Slo(),
    policy: PolicyName = PolicyName("default"),
    cost: CostPolicy = CostPolicy(),
) -> State:
    """Find out whether a model may move to a cheaper target, precision or runtime, and propose the move if it may.

    Args:
        model: A model of the zoo, or your own (docs/adding-a-model.md).
        baseline: What serves the model today.
        targets: Where it might move to. Each is measured where its device is.
        backends: Runtimes to try on local targets; simulated targets bring their own.
        recipes: Precisions and how they are reached. No single INT8 recipe is right for every model, so the ladder is tried.
        slo: What a candidate must meet, at batch 1, from host memory to host memory.
        policy: How much worse accuracy may be, how much must be saved (deployments/policies.toml).
        cost: Changes to the policy's terms of money.
    """
    ask = Ask(
        model=model.value,
        baseline=baseline.cell,
        targets=tuple(target.value for target in targets),
        backends=tuple(backend.value for backend in backends),
        recipes=tuple(recipe.value for recipe in recipes),
        policy=policy.value,
        changes=cost.changes(),
        slo=slo,
    )
    done = await migration(ask, Store(), by_worker)
    await report.in_prefect(done, Store())
    return Completed(name=ENDS[done.decision.verdict], message=done.decision.summary)
