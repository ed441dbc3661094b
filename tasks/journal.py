"""The journal of a migration that has not ended: what a crash leaves, and what the same command picks up again.

A finished cell is one file, written whole or not at all, named by the cell's digest and the mode. Failures are not journalled: they are
tried again. The attempt is closed when its record is written and published.
"""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from filelock import Timeout

from tasks.errors import BadRequest
from tasks.facts import Cell, Evidence, Mode, Request, Target, Unmeasured
from tasks.store import Store, objects_of, write_atomically

KEPT_FOR = timedelta(hours=24)  # an older attempt is begun anew: its evidence would be of another day


class Attempt:
    """One migration under way. Its record is dated by `started`, so that finishing twice writes one record."""

    def __init__(self, folder: Path, request: Request, started: datetime, store: Store) -> None:
        self.folder, self.request, self.started, self.store = folder, request, started, store

    @property
    def id(self) -> str:
        """The name by which a sweep in another process finds this attempt."""
        return self.folder.name

    def target(self, name: str) -> Target:
        """The target of that name among the cells."""
        return next(cell.target for cell in (self.request.baseline, *self.request.candidates) if cell.target.name == name)

    def find(self, cell: Cell, mode: Mode) -> Evidence | None:
        """A finished cell's evidence, if it is there and all its samples are intact."""
        try:
            evidence = Evidence.model_validate_json(self._file(cell, mode).read_bytes())
        except (FileNotFoundError, ValueError):
            return None
        return evidence if all(self.store.has(sha) for sha in objects_of(evidence)) else None

    def keep(self, evidence: Evidence) -> Evidence:
        """Journal a finished cell."""
        write_atomically(self._file(evidence.cell, evidence.mode), evidence.model_dump_json(indent=1).encode())
        return evidence

    def fail(self, outcome: Unmeasured) -> None:
        """Journal why a cell has no numbers; forgotten when the attempt is resumed, so that it is tried again."""
        write_atomically(self.folder / f"{outcome.cell.digest[:32]}.unmeasured.json", outcome.model_dump_json(indent=1).encode())

    def outcomes(self) -> tuple[Evidence | Unmeasured, ...]:
        """What is known of each cell, baseline first: its valid evidence, else its screen, else why there is none."""
        return tuple(self._outcome(cell) for cell in (self.request.baseline, *self.request.candidates))

    def _outcome(self, cell: Cell) -> Evidence | Unmeasured:
        with suppress(FileNotFoundError):
            failed = Unmeasured.model_validate_json((self.folder / f"{cell.digest[:32]}.unmeasured.json").read_bytes())
            return self.find(cell, "valid") or failed
        known = self.find(cell, "valid") or self.find(cell, "screen")
        return known or Unmeasured(cell=cell, stage="measure", reason="its sweep did not come so far")

    def close(self) -> None:
        """The record is written and published: nothing is left to resume."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _file(self, cell: Cell, mode: Mode) -> Path:
        return self.folder / f"{cell.digest[:32]}.{mode}.json"


@contextmanager
def begin(request: Request, store: Store) -> Iterator[Attempt]:
    """Begin a migration, or resume the one that a crash left for the same request. BadRequest when it is running already."""
    attempt_id = request.digest[:16]
    store.tidy()
    try:
        with store.lock(f"attempt-{attempt_id}", timeout_s=0):
            attempt = _resume(attempt_id, store) or _start(attempt_id, request, store)
            for failed in attempt.folder.glob("*.unmeasured.json"):
                failed.unlink()
            yield attempt
    except Timeout:
        raise BadRequest("this very migration is already running", "wait for it, or stop it first") from None


def resume(attempt_id: str, store: Store) -> Attempt:
    """The attempt of that name, for a sweep in another process; BadRequest when there is none."""
    attempt = _resume(attempt_id, store) if attempt_id.isalnum() else None
    if attempt is None:
        raise BadRequest(f"there is no migration {attempt_id!r} under way in {store.root}", "start one with: crossgrade migrate")
    return attempt


def _resume(attempt_id: str, store: Store) -> Attempt | None:
    folder = store.root / "attempts" / attempt_id
    try:
        body = json.loads((folder / "attempt.json").read_bytes())
        request, started = Request.model_validate(body["request"]), datetime.fromisoformat(body["started"])
    except (FileNotFoundError, ValueError, KeyError):
        return None
    if datetime.now(UTC) - started > KEPT_FOR:
        shutil.rmtree(folder)
        return None
    return Attempt(folder, request, started, store)


def _start(attempt_id: str, request: Request, store: Store) -> Attempt:
    folder = store.root / "attempts" / attempt_id
    started = datetime.now(UTC)
    body = {"request": request.model_dump(mode="json"), "started": started.isoformat()}
    write_atomically(folder / "attempt.json", json.dumps(body, indent=1).encode())
    return Attempt(folder, request, started, store)
