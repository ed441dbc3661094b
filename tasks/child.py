"""Run one function in a fresh process: a crash, a hang or a leak ends there and becomes a ChildFailed with its reason.

The parent writes a JSON call to the child's stdin and reads a JSON answer from a file of its own, so whatever libraries print on
stdout and stderr breaks nothing; the last of it is kept for error messages. Both ends are files, not pipes: neither side can block
on a large message, and the parent sleeps in the kernel until the child ends.

The child runs in its own session, so that Ctrl-C reaches the parent alone and the whole group, grandchildren included, can be
killed; and it is killed by the kernel (PR_SET_PDEATHSIG) when the *thread* that called `call` ends, kill -9 included. `call` blocks
that thread, so it cannot end earlier. A shell in the group then kills the compilers and other descendants.

This module runs as the child's __main__: it must stay cheap to import. Linux only.
"""

import ctypes
import importlib
import json
import logging
import os
import resource
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextvars import copy_context
from pathlib import Path
from typing import IO, Any, TypeVar

from tasks import errors
from tasks.errors import BadRequest, ChildFailed, PipelineError, WrongDevice
from tasks.facts import Fact

F = TypeVar("F", bound=Fact)
ROOT = Path(__file__).resolve().parent.parent
LOGGED = b"\x1ecrossgrade: "  # begins a line that the child logged
log = logging.getLogger("crossgrade")
TAIL_BYTES = 4096  # of what the child printed
PR_SET_PDEATHSIG = 1
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS", "RAYON_NUM_THREADS")
REMEDIES = {
    signal.SIGKILL: "the kernel kills what takes too much memory: use a target with more memory, or a smaller batch",
    signal.SIGSEGV: "the runtime itself crashed: try another backend or recipe, or another version of the runtime",
    signal.SIGABRT: "the runtime gave up, often for lack of memory: try another backend or recipe, or a target with more memory",
    signal.SIGILL: "a library was compiled for another CPU: install the one that fits this machine",
}


def call(
    function: str,
    argument: dict,
    result: type[F],
    *,
    timeout_s: float,
    cores: int | None = None,
    memory_bytes: int | None = None,
    doing: str = "",
) -> F:
    """Run `function` in a fresh Python process and return the fact it returns.

    Args:
        function: "module:function", importable from the checkout; takes `argument` as its only parameter.
        argument: a JSON object.
        result: the type of fact that comes back.
        timeout_s: the child and its descendants are killed after that.
        cores: pin the child to so many cores and tell its thread pools; None leaves both alone.
        memory_bytes: limit of the child's private memory (RLIMIT_DATA: a limit of address space breaks torch).
        doing: what the child is at, for messages: "measuring ort/int8@cpu-2core".

    Raises:
        ChildFailed: it crashed, hung, ran out of memory, raised what is no PipelineError, or answered something else.
        WrongDevice: this process may not use that many cores.
        PipelineError: whatever the function raised, as the same type.
    """
    doing = doing or function
    order = {"function": function, "argument": argument, "parent": os.getpid(), "cpus": pick(cores), "memory_bytes": memory_bytes}
    with tempfile.TemporaryFile() as ask, tempfile.TemporaryFile() as answer:
        ask.write(json.dumps(order, allow_nan=False).encode())
        ask.seek(0)
        returncode, tail = _run(function, ask, answer, timeout_s, cores)
        answer.seek(0)
        reply = answer.read()
    if returncode is None:
        raise ChildFailed(f"{doing} was stopped after {timeout_s:g} s{_words(tail)}", "it hangs, or needs a smaller workload")
    if returncode != 0 or not reply:
        raise _failure(returncode, tail, doing)
    return _read(reply, result, doing)


def pick(cores: int | None) -> list[int] | None:
    """The cores a child is pinned to: the last ones this process may use, because the first serves most interrupts."""
    if cores is None:
        return None
    usable = sorted(os.sched_getaffinity(0))
    if not 1 <= cores <= len(usable):
        raise WrongDevice(
            f"asked for {cores} cores, this process may use {len(usable)}", "choose a target with fewer threads, or another host"
        )
    return usable[-cores:]


def _run(function: str, ask: IO[bytes], answer: IO[bytes], timeout_s: float, cores: int | None) -> tuple[int | None, str]:
    """Start the child, wait without polling, kill what is left of its group. Returns (return code or None after a timeout, tail)."""
    command = [sys.executable, "-m", "tasks.child", function, str(answer.fileno())]
    streams: dict[str, Any] = {"stdin": ask, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "pass_fds": (answer.fileno(),)}
    try:
        child = subprocess.Popen(command, **streams, env=_environment(cores), start_new_session=True)
    except OSError as error:
        raise ChildFailed(f"cannot start a process for {function}: {error}", "free memory or processes on this host") from error
    said = bytearray()
    hear = copy_context().run  # so that what the child logs is told under the flow run that asked for it
    reader = threading.Thread(target=hear, args=(_listen, child.stdout, said), daemon=True)  # ends with the last writer
    reader.start()
    ended = False
    try:
        ended = _wait(child.pid, timeout_s)
    finally:  # also on Ctrl-C; the child is not reaped yet, so its group's number cannot have been given to others
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        reader.join(timeout=2)
    return (child.returncode if ended else None), bytes(said).decode(errors="replace")


def _wait(pid: int, timeout_s: float) -> bool:
    """Whether the process ended in time; asleep until then."""
    handle = os.pidfd_open(pid)
    try:
        return bool(select.select([handle], [], [], timeout_s)[0])
    finally:
        os.close(handle)


def _listen(pipe: IO[bytes], said: bytearray) -> None:
    """Drain a pipe: pass on what the child logs, keep the last bytes of whatever else it printed."""
    with pipe:
        while line := pipe.readline(TAIL_BYTES):
            if line.startswith(LOGGED):
                log.info(line.removeprefix(LOGGED).decode(errors="replace").rstrip())
            else:
                said += line
                del said[:-TAIL_BYTES]


def _environment(cores: int | None) -> dict[str, str]:
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    threads = dict.fromkeys(THREAD_VARIABLES, str(cores)) if cores else {}
    return {**os.environ, "PYTHONPATH": path, "PYTHONFAULTHANDLER": "1", "TOKENIZERS_PARALLELISM": "false", **threads}


def _failure(returncode: int, tail: str, doing: str) -> ChildFailed:
    if returncode < 0:
        number = -returncode
        name = signal.strsignal(number) or "unknown"
        remedy = REMEDIES.get(signal.Signals(number), "") if number in signal.valid_signals() else ""
        return ChildFailed(f"{doing} was killed by signal {number} ({name.lower()}){_words(tail)}", remedy)
    return ChildFailed(f"{doing} failed in its process with exit status {returncode}{_words(tail)}")


def _words(tail: str) -> str:
    """The line of the output that says most: the last one that names an error, else the last one."""
    lines = [line.strip() for line in tail.splitlines() if line.strip() and not line.startswith((" ", "Extension modules:"))]
    telling = [line for line in lines if "rror" in line or line.startswith("Fatal")]
    return f"; it said: {(telling or lines)[-1][:400]}" if lines else ""


def _read(reply: bytes, result: type[F], doing: str) -> F:
    try:
        message = json.loads(reply)
        if "error" not in message:
            return result.model_validate_json(json.dumps(message["fact"]))
        raise _same_error(message)
    except (ValueError, KeyError, TypeError) as error:
        raise ChildFailed(f"{doing} answered what is not a {result.__name__}: {str(error)[:400]}") from error


def _same_error(message: dict) -> PipelineError:
    kind = getattr(errors, message["error"], None)
    kind = kind if isinstance(kind, type) and issubclass(kind, PipelineError) else errors.Terminal
    return kind(message["what"], message["fix"])


def main(argv: Sequence[str]) -> None:
    """The child: read the call from stdin, run it, write the answer to the given descriptor."""
    answer = int(argv[1])
    os.set_inheritable(answer, False)
    order = json.load(sys.stdin)
    _die_with(order["parent"])
    _take_descendants_along()
    if order["cpus"]:
        os.sched_setaffinity(0, order["cpus"])
    if order["memory_bytes"]:
        resource.setrlimit(resource.RLIMIT_DATA, (order["memory_bytes"], order["memory_bytes"]))
    _log_to_parent()
    reply = _answer(order)
    with os.fdopen(answer, "wb") as file:
        file.write(json.dumps(reply, allow_nan=False).encode())
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # some runtimes crash or linger while the interpreter tears them down: the answer is already out


def _log_to_parent() -> None:
    """Progress of long work is for people: the parent passes it on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(f"{LOGGED.decode()}%(message)s"))
    log.handlers, log.propagate = [handler], False
    log.setLevel(logging.INFO)


def _die_with(parent: int) -> None:
    """Be killed when the parent's thread ends; the check closes the gap before the request took effect."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def _take_descendants_along() -> None:
    """A shell of this group reads a pipe that only we hold open; when we are gone it kills the group, whose number it keeps from reuse."""
    read, _held_open = os.pipe()
    subprocess.Popen(("/bin/sh", "-c", "read _; kill -KILL 0"), stdin=read, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    os.close(read)


def _answer(order: dict) -> dict:
    """The function's fact, or its PipelineError, as JSON. Any other exception prints its traceback and ends the child."""
    started = time.perf_counter_ns()
    try:
        fact = _function(order["function"])(order["argument"])
    except MemoryError:
        limit = f" of {order['memory_bytes'] / 2**30:.2f} GiB" if order["memory_bytes"] else ""
        seconds = (time.perf_counter_ns() - started) / 1e9
        what = f"{order['function']} reached its memory limit{limit} after {seconds:.1f} s"
        return {"error": "ChildFailed", "what": what, "fix": "use a target with more memory, or a smaller batch"}
    except PipelineError as error:
        return {"error": type(error).__name__, "what": error.what, "fix": error.fix}
    return {"fact": fact.model_dump(mode="json")}


def _function(name: str) -> Callable[[dict], Fact]:
    module, _, function = name.partition(":")
    try:
        return getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise BadRequest(f"cannot import {name}: {error}", "a child runs a module-level function, named module:function") from error


if __name__ == "__main__":
    main(sys.argv[1:])
