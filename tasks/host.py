"""The machine a number comes from: what it is, whether others are using it, and who may measure on it now."""

import logging
import os
import platform
import re
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import NamedTuple

from filelock import FileLock, Timeout

from tasks.errors import BadRequest
from tasks.facts import Host
from tasks.optional import version_of

log = logging.getLogger("crossgrade")
FLAGS = (  # what kernels are chosen by: x86, then Arm
    *("sse4_2", "avx", "avx2", "fma", "f16c", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16"),
    *("amx_tile", "amx_int8", "amx_bf16", "asimddp", "i8mm", "bf16", "sve", "sve2", "sme"),
)
BUSY_CORES = 0.1  # foreign load above a tenth of a core is worth a warning
TELL_S = 60.0  # how often a waiting measurement says so
WAIT_S = 0.5  # how often a waiting measurement asks for the device again


def this_host(distributions: Sequence[str]) -> Host:
    """The facts of this machine and the installed versions of `distributions`."""
    import psutil

    return Host(
        hostname=platform.node() or "unknown",
        cpu=_cpuinfo()["cpu"],
        arch=platform.machine(),
        cores=os.cpu_count() or 1,  # of the machine: a measuring process is pinned to fewer
        memory_gib=round(psutil.virtual_memory().total / 2**30, 2),
        os=_os_name(),
        kernel=platform.release(),
        python=platform.python_version(),
        packages={name: version_of(name) for name in sorted(set(distributions))},
    )


def fingerprint() -> dict[str, str]:
    """What a compiled engine depends on: CPU model, instruction sets, architecture. Belongs into the key of a build."""
    return {**_cpuinfo(), "arch": platform.machine()}


@cache
def _cpuinfo() -> dict[str, str]:
    try:
        text = Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        text = ""
    name = re.search(r"^(?:model name|Model|CPU part)\s*:\s*(.+)$", text, re.MULTILINE)
    flags = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", text, re.MULTILINE)
    have = set(flags[1].split()) if flags else set()
    cpu = name[1].strip() if name else platform.processor() or "unknown"
    return {"cpu": cpu, "flags": " ".join(flag for flag in FLAGS if flag in have)}


def _os_name() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return platform.system()


# ------------------------------------------------------------------------------------------------ is it quiet?


class Activity(NamedTuple):
    """A moment on the clocks of this process's cores."""

    wall_ns: int
    busy_s: float
    own_s: float

    @classmethod
    def now(cls) -> "Activity":
        """Read the kernel's busy time of the cores this process may use, and the process's own."""
        import psutil

        cores = psutil.cpu_times(percpu=True)
        mine = [cores[cpu] for cpu in os.sched_getaffinity(0) if cpu < len(cores)]
        busy = sum(sum(core) - core.idle - getattr(core, "iowait", 0) - getattr(core, "guest", 0) for core in mine)
        return cls(time.perf_counter_ns(), busy, time.process_time())

    def foreign_cores(self, later: "Activity | None" = None) -> float:
        """How many of these cores' worth of work others have done since: 0.5 is half a core. Accurate to about 10 ms of it."""
        later = later or Activity.now()
        seconds = (later.wall_ns - self.wall_ns) / 1e9
        return max(0.0, (later.busy_s - self.busy_s) - (later.own_s - self.own_s)) / seconds if seconds else 0.0


def busy(window_s: float = 0.2) -> str:
    """A warning when other work runs on the cores this process may use, else ''. Sleeps `window_s`."""
    begin = Activity.now()
    time.sleep(window_s)
    return crowded(begin.foreign_cores())


def crowded(foreign_cores: float) -> str:
    """The warning for that much foreign load, or ''."""
    return f"other work kept {foreign_cores:.1f} of the cores busy" if foreign_cores > BUSY_CORES else ""


# ------------------------------------------------------------------------------------------------ whose turn is it?


_held: ContextVar[frozenset[str]] = ContextVar("held", default=frozenset())


@contextmanager
def lease(device: str) -> Iterator[None]:
    """Hold a device of this host, alone among all processes and checkouts of this user; waits for its turn.

    `cpu` is one lease whatever the number of threads. Whoever holds a lease may take it again,
    also in a thread or task that got a copy of its context. The lock is the kernel's: it is free again when its holder dies,
    kill -9 included.
    """
    name = re.sub(r"[^a-z0-9._-]", "_", device.lower())[:64].lstrip(".") or "_"
    if name in _held.get():
        yield
        return
    lock, holder = FileLock(_leases() / f"{name}.lock", thread_local=False), _leases() / f"{name}.pid"
    wait_s = 0.0
    while True:
        try:
            lock.acquire(timeout=wait_s, poll_interval=WAIT_S)
            break
        except Timeout:
            log.info("waiting for %s: another measurement holds it (pid %s)", device, _holder(holder))
            wait_s = TELL_S
    token = _held.set(_held.get() | {name})
    try:
        holder.write_text(str(os.getpid()))
        yield
    finally:
        _held.reset(token)
        lock.release()


def _holder(file: Path) -> str:
    try:
        return file.read_text()[:20].strip() or "unknown"
    except OSError:
        return "unknown"


def _leases() -> Path:
    """The folder of this user's leases on this machine; not under the checkout or the store, which differ between processes."""
    folder = Path(os.environ.get("CROSSGRADE_LEASES") or f"/tmp/crossgrade-{os.getuid()}")  # noqa: S108  the owner is checked below
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise BadRequest(f"{folder} belongs to someone else", "remove it, or set CROSSGRADE_LEASES to a folder of your own")
    return folder
