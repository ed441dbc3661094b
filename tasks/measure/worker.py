"""The measuring process: open one engine, time it once, answer with facts. Imports no model zoo, no Prefect, no MLflow."""

import re
import resource
import time
from datetime import UTC, datetime
from pathlib import Path

from tasks.backends import backend
from tasks.facts import Artifact, Cell, Fact, Host, Placement, Repeat, Sha256, Workload
from tasks.host import Activity, crowded, this_host
from tasks.measure.feeds import load_feeds
from tasks.measure.loop import sample
from tasks.store import Store


class Job(Fact):
    """One cell to be timed: the engine that was scored and will be shipped, and the stored feeds."""

    engine: Artifact
    cell: Cell
    workload: Workload
    feeds: Sha256


class Once(Fact):
    """What one fresh process saw."""

    repeat: Repeat
    placement: Placement
    host: Host


def once(argument: dict) -> Once:
    """Time a job in this process. `argument`: {"job": Job, "store": folder}."""
    job, store = Job.model_validate(argument["job"]), Store(Path(argument["store"]))
    runtime = backend(job.cell.backend)
    feeds, engine = load_feeds(job.feeds, store), store.path(job.engine.sha256)
    started, begin = datetime.now(UTC), time.perf_counter_ns()
    with runtime.open(engine, job.cell) as session:
        load_s = (time.perf_counter_ns() - begin) / 1e9
        quiet = Activity.now()
        seen = sample(session, feeds, job.workload)
        foreign_cores = quiet.foreign_cores()
        placement = session.placement
    repeat = Repeat(
        samples=store.put_array(seen.samples_ns),
        count=seen.samples_ns.size,
        wall_ns=seen.wall_ns,
        warmup_dropped=seen.warmup_dropped,
        load_s=load_s,
        first_inference_ms=seen.first_inference_ms,
        peak_rss_bytes=peak_rss_bytes(),
        started=started,
        foreign_cores=foreign_cores,
        warnings=(*seen.warnings, *filter(None, [crowded(foreign_cores)])),
    )
    return Once(repeat=repeat, placement=placement, host=_host(job, placement))


def _host(job: Job, placement: Placement) -> Host:
    host = this_host(("numpy", *backend(job.cell.backend).distributions))
    return host if placement.device == "cpu" else host.model_copy(update={"accelerator": placement.device})


def peak_rss_bytes() -> int:
    """This process's peak resident memory. Not ru_maxrss: that one is inherited from the process that started us."""
    try:
        found = re.search(r"^VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return int(found[1]) * 1024 if found else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
