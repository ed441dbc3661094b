"""The process behind `crossgrade up` that runs flows: registers the deployments, resumes what a crash interrupted, then polls the pools.

One process serves all local pools: four of `prefect worker start` would take 700 MB and import Prefect four times. A worker on another
machine is started with that command: `prefect worker start --pool NAME --type process`.
"""

import asyncio
import logging
import os
import socket
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tasks import catalog
from tasks.errors import BadRequest, PipelineError, Transient

if TYPE_CHECKING:
    from prefect.client.orchestration import PrefectClient
    from prefect.client.schemas.objects import FlowRun

ROOT = Path(__file__).resolve().parent.parent
PREFECT_FILE = ROOT / "deployments" / "prefect.yaml"
CONTROL = "control"
POOLS_HERE = "CROSSGRADE_POOLS_HERE"  # set by `crossgrade up`: the work pools whose targets are on this machine
CONTROL_LIMIT = 4  # runs that mostly wait; SQLite locks up under about six busy processes
DEVICE_NODES = {
    "cpu": "/proc/cpuinfo",
    "simulated": "/proc/cpuinfo",
    "cuda": "/dev/nvidiactl",
    "hip": "/dev/kfd",
    "xpu": "/dev/dri",
    "gpu": "/dev/dri",
}

log = logging.getLogger("crossgrade")


def pools() -> dict[str, bool]:
    """The work pools, and whether this machine has the device of one of their targets: {'control': True, 'cpu-2core': True, ...}."""
    here = {CONTROL: True}
    for target in catalog.targets().values():
        node = DEVICE_NODES.get(target.device.partition(":")[0])
        here[target.work_pool] = here.get(target.work_pool, False) or (node is not None and Path(node).exists())
    return here


def undeployed(prefect_file: Path = PREFECT_FILE) -> list[str]:
    """Targets that no `sweep` deployment serves on their own pool: work sent to them would wait for ever."""
    import yaml

    deployments = yaml.safe_load(prefect_file.read_text())["deployments"]
    served = {(each["name"], each["work_pool"]["name"]) for each in deployments if each["entrypoint"].endswith(":sweep")}
    return [name for name, target in catalog.targets().items() if (name, target.work_pool) not in served]


async def make_pools(client: "PrefectClient", names: Sequence[str]) -> None:
    """Create the work pools that are not there. One run at a time on a target's pool: two would disturb each other's numbers."""
    from prefect.client.schemas.actions import WorkPoolCreate
    from prefect.exceptions import ObjectAlreadyExists
    from prefect.workers.process import ProcessWorker

    for name in names:
        pool = WorkPoolCreate(
            name=name,
            type=ProcessWorker.type,
            base_job_template=ProcessWorker.get_default_base_job_template(),
            concurrency_limit=CONTROL_LIMIT if name == CONTROL else 1,
        )
        try:
            await client.create_work_pool(pool)
        except ObjectAlreadyExists:
            continue  # its limit may have been changed by a person


async def unfinished(client: "PrefectClient", names: Sequence[str]) -> list["FlowRun"]:
    """Runs of these pools that the server believes to be running."""
    from prefect.client.schemas import filters
    from prefect.client.schemas.objects import StateType

    live = filters.FlowRunFilterStateType(any_=[StateType.PENDING, StateType.RUNNING, StateType.CANCELLING])
    return await client.read_flow_runs(
        flow_run_filter=filters.FlowRunFilter(state=filters.FlowRunFilterState(type=live)),
        work_pool_filter=filters.WorkPoolFilter(name=filters.WorkPoolFilterName(any_=list(names))),
    )


async def resume_interrupted(client: "PrefectClient", names: Sequence[str]) -> None:
    """Schedule again what was running when everything stopped, by Ctrl-C or by a crash; only when no worker of these pools is alive.

    Measured cells are in the journal, so a run goes on where it was. A run that another one started is ended: its parent starts it anew.
    """
    from prefect.states import AwaitingRetry, Cancelled, Crashed, State

    state: State
    for run in await unfinished(client, names):
        if run.state is not None and run.state.is_cancelling():
            state = Cancelled(message="cancelled; crossgrade was stopped before it could end")
        elif run.parent_task_run_id is not None:
            state = Crashed(message="crossgrade was stopped; the parent run starts this again")
        else:
            state = AwaitingRetry(message="crossgrade was stopped; what was measured is kept and the run goes on")
        await client.set_flow_run_state(run.id, state, force=True)
        log.info("%s was interrupted: %s", run.name, state.message)


def deploy(prefect_file: Path) -> None:
    """`prefect deploy --all` in this process: the file is the only truth, and Prefect's own command reads it."""
    from prefect.cli import app

    if missing := undeployed(prefect_file):
        raise BadRequest(
            f"{prefect_file.name} has no sweep for {', '.join(missing)} on its work pool", "add one line per target to its deployments"
        )
    sys.argv = ["prefect", "--no-prompt", "deploy", "--prefect-file", str(prefect_file), "--all"]  # app() takes them from nowhere else
    try:
        app()
    except SystemExit as end:
        if end.code:
            raise Transient(f"{prefect_file} could not be deployed", "the lines above say why") from None


async def prepare(names: Sequence[str], all_pools: Sequence[str]) -> None:
    from prefect.client.orchestration import get_client

    async with get_client() as client:
        await make_pools(client, all_pools)
        await resume_interrupted(client, names)


async def serve(names: Sequence[str]) -> None:
    """Poll the pools for ever."""
    from prefect.workers.process import ProcessWorker

    workers = [ProcessWorker(work_pool_name=name, name=f"{name}@{socket.gethostname()}", create_pool_if_not_found=False) for name in names]
    await asyncio.gather(*(worker.start(printer=partial(log.info, "%s")) for worker in workers))


def main(prefect_file: Path) -> int:
    """Prepare, then poll for ever; an exit status for the guard when that ends."""
    log.setLevel(logging.INFO)
    os.chdir(ROOT)
    known = pools()
    here = [name for name, present in known.items() if present]
    try:
        asyncio.run(prepare(here, list(known)))
        deploy(prefect_file)
        asyncio.run(serve(here))
    except PipelineError as error:
        log.error("%s", error)
        return os.EX_CONFIG if isinstance(error, BadRequest) else 1  # the guard retries 1 only
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
