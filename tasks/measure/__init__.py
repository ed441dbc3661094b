"""Time cells: each repeat in a fresh process, round robin over the cells, one cell at a time on a device.

A cell whose process crashes, hangs or runs out of memory becomes Unmeasured with its reason; the others go on.
"""

import hashlib
import logging
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from tasks import child
from tasks.errors import Terminal
from tasks.facts import Fact, Host, Placement, Repeat, Timing, Unmeasured
from tasks.host import busy, lease
from tasks.measure.feeds import load_feeds, store_feeds
from tasks.measure.worker import Job, Once
from tasks.store import Store

__all__ = ["Job", "Measured", "harness", "load_feeds", "measure", "store_feeds"]
log = logging.getLogger("crossgrade")
LOAD_S = 120.0  # for opening an engine, warm-up and a stalled machine, on top of twice the longest sampling
HARNESS = ("loop.py", "steady.py", "worker.py")


class Measured(Fact):
    """A timed cell."""

    timing: Timing
    placement: Placement
    host: Host
    measured: datetime


def measure(jobs: Sequence[Job], store: Store) -> list[Measured | Unmeasured]:
    """Time all jobs, in their order. Never cached: a measurement is an event.

    Repeat by repeat over all jobs, forwards and backwards in turn (ABBA), so that slow changes of the machine meet all alike.
    Holds the lease of every device that is involved, and waits for it.
    """
    seen: list[list[Once]] = [[] for _ in jobs]
    failed: dict[int, Unmeasured] = {}
    with ExitStack() as held:
        for device in sorted({job.cell.target.lease for job in jobs}):  # sorted: two processes cannot wait for each other
            held.enter_context(lease(device))
        if any(job.workload.mode == "valid" for job in jobs) and (warning := busy()):
            log.warning("%s just before measuring: numbers may be noisy", warning)
        for turn, index in _round_robin([job.workload.repeats for job in jobs]):
            if index in failed:
                continue
            try:
                seen[index].append(_once(jobs[index], turn, store))
            except Terminal as error:
                failed[index] = _unmeasured(jobs[index], turn, error)
    return [failed.get(index) or _measured(job, seen[index]) for index, job in enumerate(jobs)]


def _round_robin(repeats: Sequence[int]) -> list[tuple[int, int]]:
    """(turn, job) in the order they are run: 0 1 2, 2 1 0, 0 1 2, ..."""
    order = []
    for turn in range(max(repeats, default=0)):
        here = [index for index, count in enumerate(repeats) if turn < count]
        order += [(turn, index) for index in (reversed(here) if turn % 2 else here)]
    return order


def _once(job: Job, turn: int, store: Store) -> Once:
    """One repeat in a fresh process."""
    target = job.cell.target
    once = child.call(
        "tasks.measure.worker:once",
        {"job": job.model_dump(mode="json"), "store": str(store.root.resolve())},
        Once,
        timeout_s=LOAD_S + 2 * job.workload.max_duration_s,
        cores=target.threads,
        memory_bytes=int(target.memory_gib * 2**30) if target.device == "cpu" else None,
        doing=f"measuring {job.cell.name}",
    )
    median_ms = float(np.median(store.array(once.repeat.samples))) / 1e6
    log.info("%s: repeat %d of %d, %d samples, median %.3f ms", job.cell.name, turn + 1, job.workload.repeats, once.repeat.count, median_ms)
    return once


def _unmeasured(job: Job, turn: int, error: Terminal) -> Unmeasured:
    reason = str(error) if job.workload.repeats == 1 else f"repeat {turn + 1} of {job.workload.repeats}: {error}"
    log.warning("%s: %s", job.cell.name, reason)
    return Unmeasured(cell=job.cell, stage="measure", reason=reason)


def _measured(job: Job, seen: Sequence[Once]) -> Measured:
    last = seen[-1]
    timing = Timing(workload=job.workload, repeats=tuple(_with_warning(once, seen[0]) for once in seen), harness=harness())
    return Measured(timing=timing, placement=last.placement, host=last.host, measured=datetime.now(UTC))


def _with_warning(once: Once, first: Once) -> Repeat:
    """The repeat, with a warning when it ran elsewhere than the first one did."""
    if once.placement == first.placement:
        return once.repeat
    warning = f"ran on {_where(once.placement)}, the first repeat on {_where(first.placement)}"
    return once.repeat.model_copy(update={"warnings": (*once.repeat.warnings, warning)})


def _where(placement: Placement) -> str:
    elsewhere = "unknown" if placement.nodes_elsewhere is None else placement.nodes_elsewhere
    return f"{placement.device} in {placement.precision} with {placement.threads} threads and {elsewhere} nodes elsewhere"


def harness() -> str:
    """Digest of the measuring code: numbers from another harness are not compared."""
    folder = Path(__file__).parent
    return hashlib.sha256(b"".join((folder / name).read_bytes() for name in HARNESS)).hexdigest()
