"""Compiling a model for one backend and target. An engine fits the machine it was built on, so that is part of its key."""

import logging
import time

from tasks.backends import backend
from tasks.backends.base import in_words_of
from tasks.errors import Unsupported
from tasks.facts import Artifact, Cell
from tasks.host import fingerprint
from tasks.optional import version_of
from tasks.store import Store

CODE = 1  # raise it when what a backend writes changes: it is part of the cache key
log = logging.getLogger("crossgrade")


def build(source: Artifact, cell: Cell, store: Store) -> Artifact:
    """The engine of a cell, made once per processor and set of versions.

    Raises Unsupported when the cell cannot run here, or in the runtime's own words when it cannot compile the model.
    """
    runtime = backend(cell.backend)
    if (why := runtime.missing(cell)) is not None:
        raise Unsupported(f"{cell.name} cannot be built here: {why}")
    tools = {name: version_of(name) for name in runtime.distributions}
    target = {"arch": cell.target.arch, "device": cell.target.device, "threads": cell.target.threads}
    key = {"source": source.sha256, "backend": cell.backend, "target": target, "tools": tools, "host": fingerprint(), "code": CODE}

    def make() -> Artifact:
        started = time.perf_counter_ns()
        with store.scratch() as folder:
            out = folder / "engine"
            with in_words_of(cell.backend, f"building {cell.model} for {cell.name}"):
                made = runtime.build(store.path(source.sha256), cell, out)
            sha256, size = store.put_file(out), out.stat().st_size
        seconds = (time.perf_counter_ns() - started) / 1e9
        log.info("built %s for %s in %.1f s", cell.model, cell.name, seconds)
        return Artifact(
            kind="engine", format=made.format, sha256=sha256, size_bytes=size,
            parent=source.sha256, tools=tools, seconds=seconds, notes=made.notes,
        )  # fmt: skip

    return store.cached("build", key, Artifact, make)
