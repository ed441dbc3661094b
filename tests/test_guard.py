"""The guard: a command is kept running, and nothing survives its end."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from flows import guard

# a command that starts a process in a session of its own, as Prefect's worker does with flow runs, and writes both pids
FAMILY = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"], start_new_session=True)
open(sys.argv[1], "a").write(f"{os.getpid()} {child.pid}\\n")
time.sleep(60)
"""


def guarded(folder: Path, *command: str, grace_s: float = 0) -> list[str]:
    """The command line of a guard around a command."""
    return [sys.executable, "-I", "-S", guard.__file__, "it", str(folder / "log"), str(grace_s), "PARENT", *command]


def start(folder: Path, *command: str, grace_s: float = 0) -> subprocess.Popen:
    """A guard whose parent is this process."""
    line = [word.replace("PARENT", str(os.getpid())) for word in guarded(folder, *command, grace_s=grace_s)]
    return subprocess.Popen(line, stdout=subprocess.PIPE, text=True, start_new_session=True)


def until(condition, seconds: float = 10.0):
    """Wait until the condition holds; returns what it returned."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.02)
    return found


def pids(folder: Path, count: int) -> list[int]:
    """The pids that `count` starts of the family have written."""
    lines = until(lambda: (folder / "pids").exists() and len(found := (folder / "pids").read_text().splitlines()) == count and found)
    return [int(pid) for line in lines for pid in line.split()]


def alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


@pytest.fixture
def family(tmp_path):
    return [sys.executable, "-S", "-c", FAMILY, str(tmp_path / "pids")]


def test_a_killed_command_is_restarted_and_its_children_are_gone(tmp_path, family):
    """kill -9 of a worker: its flow runs must not live on beside those of the next worker."""
    process = start(tmp_path, *family)
    first, child = pids(tmp_path, 1)
    os.kill(first, signal.SIGKILL)
    assert process.stdout.readline() == "it was killed by SIGKILL: starting it again (1 of 5)\n"
    assert len(pids(tmp_path, 2)) == 4
    assert not alive(child)
    process.terminate()
    process.wait(5)


def test_sigterm_ends_the_whole_family(tmp_path, family):
    """Also what sits in a session of its own."""
    process = start(tmp_path, *family)
    found = pids(tmp_path, 1)
    process.terminate()
    assert process.wait(5) == 0
    assert not [pid for pid in found if alive(pid)]


def test_nothing_survives_the_death_of_the_parent(tmp_path, family):
    """kill -9 of `crossgrade up` cannot be caught, so the kernel tells the guard."""
    line = guarded(tmp_path, *family)
    code = f"import os, subprocess, time; subprocess.Popen([w.replace('PARENT', str(os.getpid())) for w in {line!r}]); time.sleep(60)"
    parent = subprocess.Popen([sys.executable, "-c", code])
    found = pids(tmp_path, 1)
    parent.kill()
    parent.wait()
    until(lambda: not [pid for pid in found if alive(pid)])


def test_nothing_survives_the_death_of_the_guard(tmp_path, family):
    """The command itself dies at once with its guard; what it started is left to `up`, which adopts orphans."""
    process = start(tmp_path, *family)
    command, child = pids(tmp_path, 1)
    process.kill()
    process.wait()
    until(lambda: not alive(command))
    os.kill(child, signal.SIGKILL)


def test_wrong_configuration_is_not_tried_again(tmp_path):
    """The same files would fail again: the guard says so once and ends."""
    process = start(tmp_path, sys.executable, "-S", "-c", "import sys; sys.stderr.write('no such pool'); sys.exit(78)")
    assert process.communicate(timeout=5)[0] == "it ended with status 78\n"
    assert (process.returncode, (tmp_path / "log").read_text()) == (1, "no such pool")


def test_a_command_that_always_dies_is_given_up(tmp_path, monkeypatch, capfd):
    """Restarts are bounded."""
    monkeypatch.setattr(guard.time, "sleep", lambda _s: None)
    assert guard.main("it", tmp_path / "log", 0, [sys.executable, "-S", "-c", "raise SystemExit(3)"]) == 1
    said = capfd.readouterr().out.splitlines()
    assert len(said) == guard.RESTARTS + 1
    assert said[-1] == "it ended with status 3, 6 times in 300 s"
