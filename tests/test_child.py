"""Child processes: whatever happens in one, the caller gets a fact or an error that says what happened."""

import ctypes
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tasks.child import call
from tasks.errors import BadRequest, ChildFailed, Unsupported, WrongDevice
from tasks.facts import Fact

ROOT = Path(__file__).resolve().parent.parent


class Said(Fact):
    """What a child has to say."""

    text: str
    number: int = 0


# ---- what the children do


def echo(argument: dict) -> Said:
    """Answer in the middle of much noise."""
    sys.stdout.write("noise\n" * 50_000)
    os.write(2, b'{"fact": {"text": "forged"}}')
    return Said(text=argument["text"], number=os.getpid())


def crash(argument: dict) -> Said:
    """Read address 0."""
    return Said(text=str(ctypes.string_at(0)))


def abort(argument: dict) -> Said:
    """Die as C++ runtimes do."""
    os.write(2, b"terminate called after throwing std::bad_alloc\n")
    os.abort()


def hang(argument: dict) -> Said:
    """Leave a grandchild, write both numbers to a file, and sleep."""
    grandchild = subprocess.Popen(["sleep", "60"])
    Path(argument["pids"]).write_text(f"{os.getpid()} {grandchild.pid}")
    time.sleep(60)
    return Said(text="woke up")


def train(argument: dict) -> Said:
    """Tell how far it is."""
    logging.getLogger("crossgrade").info("tinygpt: trained %d of %d steps", 50, 400)
    return Said(text="done")


def refuse(argument: dict) -> Said:
    """Raise one of our own errors."""
    raise Unsupported("no kernel for GridSample", "keep it in FP32")


def stumble(argument: dict) -> Said:
    """Raise an error that is not ours."""
    raise ValueError("the 7th value is odd")


def devour(argument: dict) -> Said:
    """Take 2 GiB."""
    return Said(text="fed", number=len(bytearray(2 << 30)))


def leave(argument: dict) -> Said:
    """Exit without an answer."""
    os._exit(0)


def surroundings(argument: dict) -> Said:
    """The cores and threads this process may use, and which heavy modules it has loaded."""
    heavy = sorted({"prefect", "mlflow", "torch", "onnxruntime", "pandas"} & set(sys.modules))
    return Said(text=f"{os.environ.get('OMP_NUM_THREADS')} {' '.join(heavy)}".strip(), number=len(os.sched_getaffinity(0)))


def ask(function: str, argument: dict | None = None, timeout_s: float = 60, **limits) -> Said:
    """Call one of the functions above."""
    return call(f"tests.test_child:{function}", argument or {}, Said, timeout_s=timeout_s, **limits)


def gone(pid: int) -> bool:
    """Whether a process has ended, or is a zombie that init has yet to reap; waits a little."""
    for _ in range(100):
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.05)
    return False


# ---- tests


def test_answer_survives_noise() -> None:
    """A fact comes back from another process although both output streams are full of other things."""
    said = ask("echo", {"text": "häßlich \u2713"})
    assert said.text == "häßlich \u2713"
    assert said.number != os.getpid()


def test_large_argument() -> None:
    """An argument far beyond a pipe's buffer neither blocks nor breaks."""
    assert len(ask("echo", {"text": "x" * 3_000_000}).text) == 3_000_000


def test_crash_names_its_signal() -> None:
    """A segmentation fault becomes a ChildFailed with the signal, what was going on, and a way out."""
    with pytest.raises(ChildFailed, match=r"measuring x was killed by signal 11 \(segmentation fault\).*try another backend"):
        ask("crash", doing="measuring x")


def test_abort_keeps_last_words() -> None:
    """What a runtime printed before it gave up is in the message."""
    with pytest.raises(ChildFailed, match="signal 6.*(bad_alloc|Aborted)"):
        ask("abort")


def test_timeout_kills_the_whole_group(tmp_path: Path) -> None:
    """A hang ends at the time limit, and its grandchildren with it; nothing is left as a zombie of ours."""
    with pytest.raises(ChildFailed, match="stopped after 2 s"):
        ask("hang", {"pids": str(tmp_path / "pids")}, timeout_s=2)
    child, grandchild = map(int, (tmp_path / "pids").read_text().split())
    assert not psutil.pid_exists(child)
    assert gone(grandchild)


def test_own_errors_come_back_as_themselves() -> None:
    """A PipelineError raised in the child is raised here with the same type, text and way out."""
    with pytest.raises(Unsupported) as caught:
        ask("refuse")
    assert (caught.value.what, caught.value.fix) == ("no kernel for GridSample", "keep it in FP32")


@pytest.mark.parametrize(
    ("function", "words"),
    [("stumble", "exit status 1; it said: ValueError: the 7th value is odd"), ("leave", "exit status 0")],
)
def test_other_ends_are_reported(function: str, words: str) -> None:
    """A foreign exception and a missing answer are ChildFailed, in the child's own words where it had some."""
    with pytest.raises(ChildFailed, match=words):
        ask(function)


def test_memory_limit() -> None:
    """A child that takes more than it may have fails alone, and the message names the limit."""
    with pytest.raises(ChildFailed, match=r"memory limit of 1\.00 GiB"):
        ask("devour", memory_bytes=1 << 30)


def test_wrong_answer_is_refused() -> None:
    """An answer of another type than was asked for is not passed on."""

    class Other(Fact):
        """Some other fact."""

        level: int

    with pytest.raises(ChildFailed, match="is not a Other"):
        call("tests.test_child:echo", {"text": "x"}, Other, timeout_s=60)


@pytest.mark.parametrize("function", ["tests.test_child:nothing_here", "no.such.module:f"])
def test_unknown_function(function: str) -> None:
    """A function that cannot be imported is a BadRequest that names it."""
    with pytest.raises(BadRequest, match="cannot import"):
        call(function, {}, Said, timeout_s=60)


def test_pinned_and_light() -> None:
    """A child has the cores and threads it was given, and neither Prefect nor MLflow nor any runtime until it asks for one."""
    said = ask("surroundings", cores=1)
    assert (said.text, said.number) == ("1", 1)


def test_more_cores_than_there_are() -> None:
    """Cores this process may not use are refused before anything starts."""
    with pytest.raises(WrongDevice, match="asked for 4096 cores"):
        ask("surroundings", cores=4096)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_child_ends_with_its_caller(number: int, tmp_path: Path) -> None:
    """kill -9 and Ctrl-C on the caller end the child and what it started."""
    pids = tmp_path / "pids"
    code = f"from tests.test_child import ask; ask('hang', {{'pids': {str(pids)!r}}})"
    caller = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stderr=subprocess.DEVNULL)
    try:
        for _ in range(400):
            if pids.exists() and len(pids.read_text().split()) == 2:
                break
            time.sleep(0.05)
        child, grandchild = map(int, pids.read_text().split())
        caller.send_signal(number)
        caller.wait(timeout=20)
        assert gone(child)
        assert gone(grandchild)
    finally:
        caller.kill()
        caller.wait()
        if pids.exists():
            for pid in map(int, pids.read_text().split()):
                if psutil.pid_exists(pid) and psutil.Process(pid).name() == "sleep":
                    os.kill(pid, signal.SIGKILL)


def test_what_a_child_logs_is_told_by_the_parent(caplog: pytest.LogCaptureFixture) -> None:
    """Training for minutes in a child must not look like a hang."""
    with caplog.at_level("INFO", logger="crossgrade"):
        call("tests.test_child:train", {}, Said, timeout_s=60)
    assert "trained 50 of 400 steps" in caplog.text
