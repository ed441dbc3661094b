"""The store: whole or not at all, verified on reading, safe against two writers and kill -9."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tasks.errors import BadArtifact, BadRequest
from tasks.facts import Artifact
from tasks.store import Store

HOLD = """
import sys, time
from pathlib import Path
from tasks.store import Store
with Store(Path(sys.argv[1])).lock("x"):
    print("held", flush=True)
    time.sleep(60)
"""

WRITE = """
import itertools, sys
from pathlib import Path
from tasks.store import Store
store = Store(Path(sys.argv[1]))
print("go", flush=True)
for number in itertools.count():
    store.put(str(number).encode() * 200_000)
"""


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path)


def artifact(store: Store, data: bytes) -> Artifact:
    return Artifact(kind="exported", format="onnx", sha256=store.put(data), size_bytes=len(data))


def test_what_is_put_comes_back_under_its_sha256(store):
    """Bytes, files and arrays are named by their contents."""
    sha256 = store.put(b"engine")
    assert store.path(sha256).read_bytes() == b"engine"
    assert store.put_file(store.path(sha256)) == sha256
    samples = np.arange(7)
    assert (store.array(store.put_array(samples)) == samples).all()


def test_a_changed_object_is_refused_and_removed(store):
    """A file that is not what its name says is never handed out, and is made anew."""
    sha256 = store.put(b"engine")
    store.path(sha256).write_bytes(b"evil")
    with pytest.raises(BadArtifact, match="was changed on disk"):
        store.path(sha256)
    assert not store.has(sha256)
    store.put(b"engine")
    assert store.has(sha256)


@pytest.mark.parametrize("name", ["../../etc/passwd", "", "AB" * 32, "a" * 63])
def test_what_is_no_digest_is_no_path(store, name):
    """A record's text cannot lead out of the store."""
    with pytest.raises(BadArtifact):
        store.path(name)


def test_a_stage_is_made_once_and_found_again(store):
    """The same key finds the same fact; another key makes another."""
    made = []

    def make():
        made.append(1)
        return artifact(store, b"onnx")

    first = store.cached("export", {"model": "m"}, Artifact, make)
    assert store.cached("export", {"model": "m"}, Artifact, make) == first
    assert len(made) == 1
    store.cached("export", {"model": "n"}, Artifact, make)
    assert len(made) == 2


def test_a_result_whose_object_was_lost_is_made_again(store):
    """A cache entry that names a missing file is no entry."""
    first = store.cached("export", 1, Artifact, lambda: artifact(store, b"onnx"))
    store.path(first.sha256).unlink()
    assert store.find("export", 1, Artifact) is None
    store.cached("export", 1, Artifact, lambda: artifact(store, b"onnx"))
    assert store.has(first.sha256)


def test_a_failure_is_not_kept(store):
    """What failed once is tried again."""

    def fail():
        raise BadRequest("no")

    with pytest.raises(BadRequest):
        store.cached("export", 1, Artifact, fail)
    assert store.cached("export", 1, Artifact, lambda: artifact(store, b"x")).size_bytes == 1


def _make_slowly(root: str, log: str) -> None:
    store = Store(Path(root))

    def make():
        with Path(log).open("a") as file:
            file.write("made\n")
        time.sleep(0.5)
        return artifact(store, b"slow")

    store.cached("build", 1, Artifact, make)


def test_two_processes_with_one_key_make_it_once(tmp_path):
    """The second waits for the first instead of compiling beside it."""
    context = multiprocessing.get_context("fork")
    both = [context.Process(target=_make_slowly, args=(str(tmp_path), str(tmp_path / "log"))) for _ in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join()
    assert (tmp_path / "log").read_text() == "made\n"


def test_a_lock_is_free_again_after_kill_9(store):
    """The kernel frees what a killed process held."""
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(store.root)], stdout=subprocess.PIPE)
    assert holder.stdout.readline() == b"held\n"
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    with store.lock("x", timeout_s=2):
        pass


def test_a_writer_killed_at_any_moment_leaves_no_half_object(tmp_path):
    """Every object that can be seen is whole."""
    writer = subprocess.Popen([sys.executable, "-c", WRITE, str(tmp_path)], stdout=subprocess.PIPE)
    writer.stdout.readline()
    time.sleep(0.3)
    writer.kill()
    writer.wait()
    store = Store(tmp_path)
    names = [path.name for path in tmp_path.glob("objects/*/*") if not path.name.startswith(".new-")]
    assert names
    assert all(store.has(name) for name in names)
