"""Keeps one command running: `python guard.py NAME LOG GRACE_S PARENT COMMAND...`, with nothing but the standard library.

A command that ends is started again, at most `RESTARTS` times within `WINDOW_S`, unless it says that its configuration is wrong; what it
leaves behind is killed first. On SIGTERM, or when the parent dies in any way, the command gets SIGTERM and `GRACE_S` seconds; then it and
all its descendants are killed, also those in sessions of their own: the guard is a subreaper, so orphans become its children. Each event
is one line on standard output.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import NoReturn

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h
RESTARTS, WINDOW_S = 5, 300.0
LIBC = ctypes.CDLL(None, use_errno=True)


class Stop(BaseException):
    """SIGTERM arrived."""


def die_with_parent(signum: int) -> None:
    """Have the kernel send `signum` to this process when its parent dies."""
    LIBC.prctl(PR_SET_PDEATHSIG, signum, 0, 0, 0)


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent dies, so that `kill_descendants` finds them."""
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def children(pid: int) -> list[int]:
    """Direct children; empty when the process is gone."""
    try:
        return [int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def descendants(pid: int) -> list[int]:
    """All processes below `pid`."""
    below = children(pid)
    return below + [deeper for child in below for deeper in descendants(child)]


def kill_descendants() -> None:
    """Kill and reap everything below this process; again, until nothing is left that could have forked meanwhile."""
    while below := descendants(os.getpid()):
        for pid in below:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        reap()
        time.sleep(0.01)


def reap() -> None:
    """Collect the ended children, adopted ones too."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def say(line: str) -> None:
    with suppress(BrokenPipeError):  # whoever listened is dead; SIGTERM is on its way
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def run_once(command: list[str], log: Path, grace_s: float) -> int:
    """Run the command to its end and return its exit status; a Stop ends it first and goes on to the caller."""
    with log.open("ab") as out:
        child = subprocess.Popen(  # noqa: S603 - our own arguments, passed on
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            preexec_fn=lambda: die_with_parent(signal.SIGKILL),  # noqa: PLW1509 - one thread
        )
    try:
        return child.wait()
    except Stop:
        if grace_s:
            os.killpg(child.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                child.wait(grace_s)
        raise
    finally:
        kill_descendants()


def main(name: str, log: Path, grace_s: float, command: list[str]) -> int:
    """Keep the command running; returns 1 when that cannot be done."""
    starts: list[float] = []
    while True:
        starts = [start for start in starts if time.monotonic() - start < WINDOW_S] + [time.monotonic()]
        status = run_once(command, log, grace_s)
        how = f"{name} was killed by {signal.Signals(-status).name}" if status < 0 else f"{name} ended with status {status}"
        if status == os.EX_CONFIG or len(starts) > RESTARTS:
            say(how if status == os.EX_CONFIG else f"{how}, {len(starts)} times in {WINDOW_S:.0f} s")
            return 1
        say(f"{how}: starting it again ({len(starts)} of {RESTARTS})")
        time.sleep(len(starts))  # a server that was killed together with this needs seconds to be back


def on_sigterm(_signum: int, _frame: FrameType | None) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # one is enough: the second must not interrupt the killing
    raise Stop


if __name__ == "__main__":
    parent = int(sys.argv[4])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business: it stops its children in order
    signal.signal(signal.SIGTERM, on_sigterm)
    die_with_parent(signal.SIGTERM)
    adopt_orphans()
    try:
        sys.exit(main(sys.argv[1], Path(sys.argv[2]), float(sys.argv[3]), sys.argv[5:]) if os.getppid() == parent else 0)
    except Stop:
        sys.exit(0)
