"""A real `crossgrade up` for tests."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from flows.services import get

ROOT = Path(__file__).resolve().parent.parent


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Up:
    """A real `crossgrade up` in a process of its own."""

    def __init__(self, home: Path) -> None:
        self.home, self.ports = home, (free_port(), free_port())
        command = [sys.executable, "-m", "flows", "up", "--prefect-port", str(self.ports[0]), "--mlflow-port", str(self.ports[1])]
        env = {**os.environ, "CROSSGRADE_HOME": str(home), "COLUMNS": "200"}
        home.mkdir(exist_ok=True)
        self.said = home / "said.txt"
        with self.said.open("w") as out:
            self.process = subprocess.Popen(command, cwd=ROOT, env=env, stdout=out, stderr=out, start_new_session=True)
        self.wait_for("Ctrl-C stops everything")

    def wait_for(self, words: str, seconds: float = 240) -> str:
        """Wait until it has said so."""
        end = time.monotonic() + seconds
        while words not in (text := self.said.read_text()):
            assert self.process.poll() is None, text
            assert time.monotonic() < end, text
            time.sleep(0.1)
        return text

    def wait_until(self, condition: Callable[[], Any], seconds: float = 60) -> Any:
        """Wait until the condition holds; returns what it returned."""
        end = time.monotonic() + seconds
        while not (found := condition()):
            assert time.monotonic() < end, self.said.read_text()
            time.sleep(0.2)
        return found

    def stop(self) -> int:
        """Ctrl-C from another terminal; its exit status."""
        self.process.terminate()
        return self.process.wait(30)

    def family(self) -> list[psutil.Process]:
        """Every process below it."""
        return psutil.Process(self.process.pid).children(recursive=True)

    def kill(self, *words: str) -> None:
        """kill -9 of the one process with these arguments."""
        (victim,) = [process for process in self.family() if _arguments(process)[: len(words)] == list(words)]
        victim.kill()

    def api(self, path: str, body: object = None) -> Any:
        """A question to Prefect's API; None when it does not answer."""
        answer = get(f"http://127.0.0.1:{self.ports[0]}/api{path}", body)
        return answer and json.loads(answer)


def _arguments(process: psutil.Process) -> list[str]:
    """Its arguments; none for one that has just ended."""
    try:
        return process.cmdline()[1:]
    except psutil.Error:
        return []
