"""What `crossgrade up` starts: the commands of the two servers and of the workers, their environment, and when each is ready."""

import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.error import URLError
from urllib.request import ProxyHandler, Request, build_opener

import psutil

from flows import workers
from tasks.facts import Fact
from tasks.store import write_atomically
from tasks.tracking import sqlite_uri


class Addresses(Fact):
    """Where a running `crossgrade up` answers."""

    pid: int
    pid_started: float
    prefect: str
    mlflow: str

    @property
    def prefect_api(self) -> str:
        return f"{self.prefect}/api"


def addresses(home: Path) -> Addresses | None:
    """The servers that run on this home, or None; a file left by a killed process does not count."""
    try:
        found = Addresses.model_validate_json((home / "servers.json").read_bytes())
        alive = psutil.Process(found.pid).create_time() == found.pid_started
    except (FileNotFoundError, ValueError, psutil.NoSuchProcess):
        return None
    return found if alive else None


@dataclass(frozen=True)
class Service:
    """One child: its command, what it needs in its environment, and how long it may take to end (0: killed at once)."""

    name: str
    command: tuple[str, ...]
    env: Mapping[str, str]
    grace_s: float
    ready: Callable[[], bool]


def services(home: Path, where: Addresses, host: str, prefect_port: int, mlflow_port: int) -> list[Service]:
    """The two servers, then the workers: started in this order, stopped in the other."""
    python, env = sys.executable, environment(home, where)
    prefect: tuple[str, ...] = (python, "-m", "prefect", "server", "start", "--host", host, "--port", str(prefect_port))
    mlflow: tuple[str, ...] = (python, "-m", "tasks.tracking", str(home), python, "-m", "mlflow", "server")
    mlflow += ("--host", host, "--port", str(mlflow_port), "--workers", "1")
    mlflow += ("--backend-store-uri", sqlite_uri(home / "mlflow.db"), "--artifacts-destination", str(home / "mlartifacts"))
    mlflow += ("--allowed-hosts", ",".join(f"{name}:{mlflow_port}" for name in dict.fromkeys((host, "127.0.0.1", "localhost"))))
    since = datetime.now(UTC)
    return [
        Service("Prefect", prefect, env, 5, lambda: get(f"{where.prefect_api}/health") is not None),
        Service("MLflow", mlflow, env, 5, lambda: get(f"{where.mlflow}/health") is not None),
        Service("workers", (python, "-m", "flows.workers", str(workers.PREFECT_FILE)), env, 0, lambda: workers_poll(where, since)),
    ]


def environment(home: Path, where: Addresses) -> dict[str, str]:
    """The environment of every child. Telemetry is off everywhere: DO_NOT_TRACK covers Prefect, and MLflow if it is the word 'true'."""
    return {
        **os.environ,
        "CROSSGRADE_HOME": str(home),
        workers.POOLS_HERE: ",".join(name for name, here in workers.pools().items() if here),
        "DO_NOT_TRACK": "true",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # eight helper processes for LLM judges, 180 MB each
        "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
        "MLFLOW_TRACKING_URI": where.mlflow,
        "PREFECT_API_URL": where.prefect_api,
        "PREFECT_HOME": str(home / "prefect"),
        "PREFECT_LOGGING_EXTRA_LOGGERS": "crossgrade",
        "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",
        "PREFECT_SERVER_DATABASE_CONNECTION_URL": sqlite_uri(home / "prefect" / "prefect.db").replace("sqlite:", "sqlite+aiosqlite:", 1),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_SERVER_EPHEMERAL_ENABLED": "false",
        "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
        "PREFECT_UI_API_URL": where.prefect_api,  # --port alone leaves the UI calling port 4200
        "PREFECT_UI_STATIC_DIRECTORY": str(home / "prefect-ui"),
        "PREFECT_UI_URL": where.prefect,
        "PREFECT_WORKER_PREFETCH_SECONDS": "10",
        "PREFECT_WORKER_QUERY_SECONDS": "3",  # each poll of four pools takes the server 0.1 s of a core that may be measured on
        "PYTHONPATH": os.pathsep.join(filter(None, (str(workers.ROOT), os.environ.get("PYTHONPATH")))),
        "PYTHONUNBUFFERED": "1",
        "TMPDIR": str(home / "tmp"),  # killed runs leave files here; emptied at the next start
    }


def keep_pages_at_home(home: Path, where: Addresses) -> None:
    """Let Prefect's pages call nobody but us: they ask amplitude.com for a configuration on every load, whatever the settings say.

    (Its older pages call nobody, but a click on their drop-downs opens and closes them at once.)
    """
    page = home / "prefect-ui" / "v2" / "index.html"
    allowed = f"'self' {where.prefect} {where.prefect.replace('http', 'ws', 1)}"
    rule = f'<meta http-equiv="Content-Security-Policy" content="connect-src {allowed}">'
    html = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page.read_text())
    write_atomically(page, html.replace("<head>", f"<head>{rule}", 1).encode())


def get(address: str, body: object = None) -> bytes | None:
    """The answer of one of our own servers, never through a proxy; None when there is none."""
    request = Request(address, data=None if body is None else json.dumps(body).encode(), headers={"Content-Type": "application/json"})  # noqa: S310
    try:
        with build_opener(ProxyHandler({})).open(request, timeout=5) as answer:
            return bytes(answer.read())
    except (URLError, OSError):
        return None


def workers_poll(where: Addresses, since: datetime) -> bool:
    """Whether every local pool has a worker that has polled since we started."""
    for pool in (name for name, here in workers.pools().items() if here):
        answer = get(f"{where.prefect_api}/work_pools/{pool}/workers/filter", {})
        seen = [worker.get("last_heartbeat_time") for worker in json.loads(answer)] if answer else []
        if not any(beat and datetime.fromisoformat(beat) > since for beat in seen):
            return False
    return True
