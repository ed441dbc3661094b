"""Facts about this machine, and the lease that lets one measurement at a time have a device."""

import logging
import os
import subprocess
import sys
import threading
import time
from contextvars import copy_context
from pathlib import Path

import pytest

from tasks.errors import BadRequest
from tasks.host import Activity, busy, crowded, fingerprint, lease, this_host

ROOT = Path(__file__).resolve().parent.parent
HOLD = "import sys, time; from tasks.host import lease\nwith lease(sys.argv[1]): print('held', flush=True); time.sleep(60)"


@pytest.fixture(autouse=True)
def leases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of leases for each test."""
    monkeypatch.setenv("CROSSGRADE_LEASES", str(tmp_path / "leases"))
    return tmp_path / "leases"


def holder(device: str) -> subprocess.Popen[str]:
    """Another process that holds a lease."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, device], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_host_facts() -> None:
    """A host knows its processor, memory and the versions asked for; what is not installed is 'absent', not left out."""
    host = this_host(["numpy", "no-such-distribution"])
    assert host.cpu not in ("", "unknown")
    assert host.cores >= 1
    assert host.memory_gib > 0.1
    assert host.packages["numpy"][0].isdigit()
    assert host.packages["no-such-distribution"] == "absent"


def test_fingerprint_is_stable() -> None:
    """What goes into a build's key is the same each time, and names processor and architecture."""
    assert fingerprint() == fingerprint()
    assert set(fingerprint()) == {"cpu", "flags", "arch"}
    fingerprint().clear()
    assert fingerprint()["arch"]


def test_own_work_is_not_foreign() -> None:
    """What this process did itself is taken off what its cores did."""
    before = Activity(wall_ns=0, busy_s=10.0, own_s=2.0)
    assert before.foreign_cores(Activity(wall_ns=2_000_000_000, busy_s=13.0, own_s=4.0)) == 0.5
    assert before.foreign_cores(Activity(wall_ns=2_000_000_000, busy_s=11.99, own_s=4.0)) == 0.0


def test_foreign_work_is_seen() -> None:
    """Another process that spins on every core shows up as a warning."""
    spin = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in os.sched_getaffinity(0)]
    try:
        time.sleep(0.3)
        assert "other work kept" in busy(0.4)
    finally:
        for process in spin:
            process.kill()
            process.wait()


def test_quiet_needs_no_words() -> None:
    """A few hundredths of a core are no warning."""
    assert crowded(0.02) == ""
    assert crowded(0.5) == "other work kept 0.5 of the cores busy"


def test_second_holder_waits_and_says_for_whom(caplog: pytest.LogCaptureFixture) -> None:
    """A lease held by another process is waited for, the log names the holder, and kill -9 of the holder frees it."""
    other = holder("cpu")
    timer = threading.Timer(0.3, other.kill)
    timer.start()
    try:
        with caplog.at_level(logging.INFO, "crossgrade"), lease("cpu"):
            assert other.wait(timeout=10) == -9
    finally:
        other.kill()
        timer.join()
    assert f"waiting for cpu: another measurement holds it (pid {other.pid})" in caplog.text


def test_devices_do_not_wait_for_each_other() -> None:
    """Another device is free although one is held."""
    other = holder("simulated:l4")
    try:
        with lease("simulated:t4"), lease("cpu"):
            assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_holder_may_take_it_again() -> None:
    """A measurement inside a sweep that holds the device does not wait for itself, also in a thread of the same context."""
    done = []

    def inner() -> None:
        with lease("cpu"):
            done.append(True)

    with lease("cpu"):
        inner()
        thread = threading.Thread(target=copy_context().run, args=(inner,))
        thread.start()
        thread.join(timeout=10)
    assert done == [True, True]


def test_threads_exclude_each_other() -> None:
    """Two threads that do not share a context take turns."""
    inside, most = [0], [0]

    def measure() -> None:
        with lease("cpu"):
            inside[0] += 1
            most[0] = max(most[0], inside[0])
            time.sleep(0.05)
            inside[0] -= 1

    threads = [threading.Thread(target=measure) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=20)
    assert most == [1]


def test_device_names_cannot_leave_the_folder(leases: Path) -> None:
    """A device name with path separators becomes a plain file in the folder of leases."""
    with lease("../../etc/passwd"):
        assert sorted(path.suffix for path in leases.iterdir()) == [".lock", ".pid"]


def test_folder_of_others_is_refused(leases: Path) -> None:
    """A folder that others may write to is not trusted."""
    leases.mkdir()
    leases.chmod(0o777)
    with pytest.raises(BadRequest, match="belongs to someone else"), lease("cpu"):
        pass
