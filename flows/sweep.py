"""One target's share of a migration: prepare every cell, screen all, time the best properly, judge those on evaluation data.

    python -m flows migrate ...      runs it in this process
    sweep/TARGET                     is the deployment on the work pool of a target; the migrate flow starts it

A lease on the device is held around the whole sweep, builds included: a compiler beside a stopwatch is noise.
"""

import asyncio
import logging
import os
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context

from prefect import flow
from prefect.deployments import arun_deployment
from prefect.flow_runs import wait_for_flow_run

from flows.workers import POOLS_HERE
from tasks import journal
from tasks.cells import Prepared, Steps
from tasks.decide import shortlist
from tasks.errors import ChildFailed, Unsupported
from tasks.facts import Cell, Evidence, Score, Unmeasured
from tasks.host import lease
from tasks.journal import Attempt
from tasks.stages import AS_TASKS
from tasks.store import Store

log = logging.getLogger("crossgrade")
ONE_HERE = asyncio.Lock()


@flow(name="sweep", flow_run_name="sweep {target}", persist_result=False)
async def sweep(attempt: str, target: str) -> None:
    """Prepare, time and judge one target's cells of a migration that is under way.

    Args:
        attempt: The migration's name in the journal; the migrate flow gives it.
        target: The target whose cells are run; this worker must serve it.
    """
    sweep_target(journal.resume(attempt, Store()), target, AS_TASKS)


async def by_worker(attempt: Attempt, target: str) -> None:
    """Run a target's share here if its pool is on this machine, else send it to the pool's worker and wait; once more if that crashed.

    Raises ChildFailed when it ends otherwise than completed; the attempt stays open and the same request goes on from there.
    """
    if attempt.target(target).work_pool in os.environ.get(POOLS_HERE, "").split(","):
        async with ONE_HERE:  # a sweep keeps this process busy: requests of the others would time out meanwhile
            await sweep(attempt.id, target)  # a subflow of this very run: another process on this machine would cost seconds more
        return
    for _ in range(2):
        run = await arun_deployment(f"sweep/{target}", parameters={"attempt": attempt.id, "target": target}, timeout=0)
        log.info("%s: measured by flow run %s, whose log tells how far it is", target, run.name)
        run = await wait_for_flow_run(run.id, timeout=None, poll_interval=1)
        if run.state is not None and run.state.is_completed():
            return
        ended, why = (run.state.name, run.state.message) if run.state else ("unknown", "")
        log.warning("the sweep of %s ended as %s: %s", target, ended, why)
        if ended != "Crashed":
            break
    raise ChildFailed(f"the sweep of {target} ended as {ended}: {why}", "run the same migration again: what was finished is kept")


def sweep_target(attempt: Attempt, target: str, steps: Steps = Steps()) -> None:  # noqa: B008 (a tuple of functions)
    """Run one target's cells; what ends is journalled, so that a crash redoes none of it."""
    request, store = attempt.request, attempt.store
    cells = [cell for cell in (request.baseline, *request.candidates) if cell.target.name == target]
    with lease(cells[0].target.lease):
        ready = _prepare(cells, attempt, steps)
        screened = [_screen(one, attempt, steps) for one in ready if one.cell != request.baseline]
        reference = _reference(ready, attempt)
        finalists, _ = shortlist([one for one in screened if one], reference, request.policy, store)
        _final([one for one in ready if one.cell == request.baseline or one.cell.digest in finalists], attempt, steps)


def _prepare(cells: list[Cell], attempt: Attempt, steps: Steps) -> list[Prepared]:
    """Two builds at a time on two cores; nothing is timed meanwhile."""
    pool = ThreadPoolExecutor(max_workers=min(4, os.cpu_count() or 1))
    try:
        futures = [pool.submit(copy_context().run, steps.prepare, cell, attempt.request.model_digest, attempt.store) for cell in cells]
        outcomes = []
        for number, (cell, future) in enumerate(zip(cells, futures, strict=True), start=1):
            outcomes.append(outcome := future.result())
            if isinstance(outcome, Prepared):
                log.info("%s: prepared %d of %d: %s", cell.target.name, number, len(cells), cell.name)
            elif cell == attempt.request.baseline:
                raise Unsupported(
                    f"the baseline {cell.name} cannot be measured: {outcome.stage}: {outcome.reason}", "nothing can be compared"
                )
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    for outcome in outcomes:
        if isinstance(outcome, Unmeasured):
            attempt.fail(outcome)
    return [outcome for outcome in outcomes if isinstance(outcome, Prepared)]


def _screen(one: Prepared, attempt: Attempt, steps: Steps) -> Evidence | None:
    """Seconds a cell, to rank and to drop."""
    if (found := attempt.find(one.cell, "screen")) is not None:
        return found
    return _keep(steps.clock([one], attempt.request.policy.screen, attempt.store)[0], attempt)


def _reference(ready: list[Prepared], attempt: Attempt) -> Score | None:
    """The baseline's score on development data: from this sweep, or from the one that ran before on the baseline's target."""
    baseline = attempt.request.baseline
    here = next((one.development for one in ready if one.cell == baseline), None)
    there = attempt.find(baseline, "valid")
    return here or (there.development if there else None)


def _final(ready: list[Prepared], attempt: Attempt, steps: Steps) -> None:
    """Time baseline and finalists in turn, then judge them on data that chose nothing."""
    left = [one for one in ready if attempt.find(one.cell, "valid") is None]
    for outcome in steps.clock(left, attempt.request.policy.valid, attempt.store) if left else []:
        _keep(steps.judge(outcome, attempt.request.model_digest, attempt.store) if isinstance(outcome, Evidence) else outcome, attempt)


def _keep(outcome: Evidence | Unmeasured, attempt: Attempt) -> Evidence | None:
    if isinstance(outcome, Evidence):
        return attempt.keep(outcome)
    attempt.fail(outcome)
    return None
