"""`crossgrade up`: Prefect, MLflow and the workers of this machine, as one thing that starts and stops.

Each is kept by a guard (`flows/guard.py`) that restarts it when it dies and leaves nothing behind when this process dies. Stopping is
killing the workers, then ending the servers: what was interrupted is scheduled again at the next start (`flows/workers.py`), so a crash,
a power cut and Ctrl-C are one case. Nothing here imports Prefect or MLflow.
"""

import ipaddress
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import filelock
import psutil
from rich.console import Console

from flows import guard
from flows.services import Addresses, Service, addresses, keep_pages_at_home, services
from tasks.errors import BadRequest, ChildFailed
from tasks.store import Store, write_atomically
from tasks.store import home as store_home

START_S = 180.0  # a first start migrates Prefect's database: 12 s on a free machine, far more on a busy one
POLL_S = 0.25


def up(*, host: str = "127.0.0.1", prefect_port: int = 4200, mlflow_port: int = 5000, console: Console) -> None:
    """Start everything on $CROSSGRADE_HOME, say where it is, and keep it running until Ctrl-C or SIGTERM.

    Raises:
        BadRequest: it is running already, a port is taken, or the host is not loopback and nothing asks for a password.
        ChildFailed: a child did not become ready, or died too often.
    """
    home = store_home()
    check_host(host)
    with only_one(home), sigterm_is_ctrl_c():
        for name, port in (("prefect", prefect_port), ("mlflow", mlflow_port)):
            check_port(host, port, f"--{name}-port")
        where = Addresses(
            pid=os.getpid(), pid_started=psutil.Process().create_time(), prefect=url(host, prefect_port), mlflow=url(host, mlflow_port)
        )
        family = Family(home, console)
        try:
            family.start(services(home, where, host, prefect_port, mlflow_port))
            keep_pages_at_home(home, where)
            write_atomically(home / "servers.json", where.model_dump_json(indent=1).encode())
            console.print(
                f"\n  Prefect  [bold]{where.prefect}[/]\n  MLflow   [bold]{where.mlflow}[/]\n\nCtrl-C stops everything and loses nothing."
            )
            family.watch(lambda: False)
        except KeyboardInterrupt:
            console.print()
        finally:
            (home / "servers.json").unlink(missing_ok=True)
            family.stop()


class Family:
    """The guards, in the order they were started."""

    def __init__(self, home: Path, console: Console) -> None:
        self.home, self.console = home, console
        self.selector = selectors.DefaultSelector()
        self.guards: dict[str, subprocess.Popen[bytes]] = {}
        guard.adopt_orphans()  # of a guard that is killed
        shutil.rmtree(home / "tmp", ignore_errors=True)
        for folder in ("tmp", "logs", "prefect", "mlartifacts"):
            (home / folder).mkdir(parents=True, exist_ok=True)

    def start(self, services: Sequence[Service]) -> None:
        """Start the servers together, the workers when both answer."""
        *first, last = services
        for batch in (first, [last]):
            self.console.print(f"starting {' and '.join(service.name for service in batch)} ...")
            began = time.monotonic()
            for service in batch:
                self.spawn(service)
            for service in batch:
                if not self.watch(service.ready, until=began + START_S):
                    raise ChildFailed(f"{service.name} did not answer within {START_S:.0f} s", f"see {self.log_of(service.name)}")
                self.console.print(f"{service.name} ready after {time.monotonic() - began:.0f} s", highlight=False)

    def spawn(self, service: Service) -> None:
        """Start a service under its guard. From the main thread: PDEATHSIG is tied to the thread that forks."""
        keeper = (
            sys.executable,
            "-I",
            "-S",
            guard.__file__,
            service.name,
            str(self.log_of(service.name)),
            str(service.grace_s),
            str(os.getpid()),
        )
        process = subprocess.Popen(
            (*keeper, *service.command),
            env=dict(service.env),
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert process.stdout is not None
        self.guards[service.name] = process
        self.selector.register(process.stdout, selectors.EVENT_READ, service.name)

    def watch(self, done: Callable[[], bool], until: float = float("inf")) -> bool:
        """Report what the guards say until `done`, or False when the time is up; ChildFailed when a guard gave up."""
        while not done():
            if time.monotonic() > until:
                return False
            for key, _ in self.selector.select(POLL_S):
                if line := key.fileobj.readline():  # type: ignore[union-attr]
                    self.console.print(line.decode(errors="replace").rstrip(), style="yellow", markup=False, highlight=False)
                else:
                    raise ChildFailed(
                        f"{key.data} cannot be kept running: {last_line(self.log_of(key.data))}", f"see {self.log_of(key.data)}"
                    )
        return True

    def stop(self) -> None:
        """Stop in the opposite order, each with everything below it."""
        for name, process in reversed(self.guards.items()):
            self.console.print(f"stopping {name} ...")
            process.terminate()
            process.wait()
        guard.kill_descendants()

    def log_of(self, name: str) -> Path:
        return self.home / "logs" / f"{name.lower()}.log"


# ------------------------------------------------------------------------------------------------ checks


@contextmanager
def only_one(home: Path) -> Iterator[None]:
    """Hold the home; the kernel frees it when this process dies."""
    try:
        with Store(home).lock("up", timeout_s=0):
            yield
    except filelock.Timeout:
        found = addresses(home)
        where = f"Prefect {found.prefect}, MLflow {found.mlflow}" if found else "still starting or stopping"
        raise BadRequest(
            f"crossgrade is already up on {home}: {where}", "stop it with Ctrl-C there, or use another CROSSGRADE_HOME"
        ) from None


@contextmanager
def sigterm_is_ctrl_c() -> Iterator[None]:
    """While inside, SIGTERM raises KeyboardInterrupt, once; further signals must not interrupt the stopping."""

    def interrupt(*_: object) -> NoReturn:
        for signum in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signum, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = {signum: signal.signal(signum, interrupt) for signum in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def check_port(host: str, port: int, option: str) -> None:
    """BadRequest when the port cannot be bound."""
    if not 0 < port < 65536:
        raise BadRequest(f"{port} is not a port", f"choose one from 1 to 65535 with {option}")
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise BadRequest(
                f"port {port} on {host} cannot be used: {error.strerror}", f"choose another with {option} {port % 65535 + 1}"
            ) from None


def check_host(host: str) -> None:
    """Beyond loopback anybody who reaches the port could run flows and approve: refused until both servers ask for a password."""
    try:
        loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        raise BadRequest(f"{host!r} is not an IP address", "use 127.0.0.1, or the address of one interface") from None
    if not loopback:
        raise BadRequest(
            f"crossgrade up listens on loopback only, not on {host}: it has no passwords",
            "reach it through ssh -L 4200:localhost:4200 -L 5000:localhost:5000, or run the two servers on their own with authentication",
        )


def last_line(file: Path) -> str:
    """The last line that is not blank: mostly the error."""
    lines = file.read_text(errors="replace").split("\n") if file.exists() else []
    return next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")


def url(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
