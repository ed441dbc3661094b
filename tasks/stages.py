"""The steps of a sweep as Prefect tasks: every operational knob on one screen, in pipeline order.

No result is persisted by Prefect: artifacts travel by digest through the store, which also is the cache. Only what may pass is retried.
"""

from typing import Any

from prefect import Task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun

from tasks import cells
from tasks.errors import Transient


async def passes(_task: Task, _run: TaskRun, state: State) -> bool:
    """Whether a failure may go away by itself: the network, a server, a lock."""
    try:
        await state.aresult()
    except Transient:
        return True
    except Exception:  # noqa: BLE001 (whatever else it was, the same input fails again)
        return False
    return False


PLAIN: Any = {
    "persist_result": False,
    "cache_policy": NO_CACHE,
    "retries": 2,
    "retry_delay_seconds": [2, 10],
    "retry_condition_fn": passes,
}

AS_TASKS = cells.Steps(
    prepare=Task(cells.prepare, name="prepare", task_run_name="prepare {cell.name}", tags=["build"], **PLAIN),
    clock=Task(cells.clock, name="measure", task_run_name="measure {workload.mode}", tags=["measure"], **PLAIN),
    judge=Task(cells.judge, name="judge", task_run_name="judge {evidence.cell.name}", tags=["accuracy"], **PLAIN),
)
