"""The content-addressed store: written atomically, verified on reading, safe against kill -9 and against two writers.

objects/ab/ab12...   every artifact, sample and record body, named by its sha256
keys/STAGE/KEY.json  what a stage made for a key: a Fact that names objects
attempts/ID/         the journal of a migration that has not ended: outcomes by cell, so that a crash redoes nothing
records/ID/          record.json and its plots
locks/               flock files; the kernel frees them when a process dies
"""

import hashlib
import io
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TypeVar

import numpy as np
from filelock import FileLock

from tasks.errors import BadArtifact, BadRequest
from tasks.facts import Fact, digest_of

F = TypeVar("F", bound=Fact)
CHUNK = 1 << 20
NEW = ".new-"  # begins the name of every file that is being written


def home() -> Path:
    """Where everything is kept: $CROSSGRADE_HOME, or .crossgrade in the checkout; BadRequest when that cannot be a folder."""
    default = Path(__file__).resolve().parent.parent / ".crossgrade"
    wanted = Path(os.environ.get("CROSSGRADE_HOME") or default)
    try:
        found = wanted.expanduser().resolve()
    except RuntimeError as error:  # ~nobody, or a circle of links
        raise BadRequest(f"CROSSGRADE_HOME={wanted} is no folder: {error}", "set it to the path of one") from error
    if found.exists() and not found.is_dir():
        raise BadRequest(f"CROSSGRADE_HOME={wanted} is a file", "set it to the path of a folder")
    return found


def sha256_of(path: Path) -> str:
    """sha256 of a file's bytes."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


@contextmanager
def whole(path: Path) -> Iterator[IO[bytes]]:
    """A file to write that appears under `path` whole or not at all: temporary file, fsync, rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=NEW, delete=False) as file:
        temporary = Path(file.name)
        try:
            yield file.file
            file.flush()
            os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def write_atomically(path: Path, data: bytes) -> None:
    """Write `path` whole or not at all."""
    with whole(path) as file:
        file.write(data)


class Store:
    """Objects by digest and stage results by key, under one folder."""

    def __init__(self, root: Path | None = None) -> None:
        self.root = root or home()
        self._seen: dict[str, tuple[int, int]] = {}

    # ---- objects

    def put(self, data: bytes) -> str:
        """Store bytes; returns their sha256."""
        sha256 = hashlib.sha256(data).hexdigest()
        if not self._object(sha256).exists():
            write_atomically(self._object(sha256), data)
        return sha256

    def put_file(self, path: Path) -> str:
        """Store a copy of a file; returns its sha256."""
        sha256 = sha256_of(path)
        if not self._object(sha256).exists():
            with whole(self._object(sha256)) as file, path.open("rb") as source:
                shutil.copyfileobj(source, file, CHUNK)
        return sha256

    def put_array(self, array: np.ndarray) -> str:
        """Store an array as .npy; returns its sha256."""
        buffer = io.BytesIO()
        np.save(buffer, array, allow_pickle=False)
        return self.put(buffer.getvalue())

    def path(self, sha256: str) -> Path:
        """The object's file, verified against its name; BadArtifact when it is missing or was changed."""
        path = self._object(sha256)
        try:
            stat = path.stat()
        except FileNotFoundError:
            raise BadArtifact(f"object {sha256[:12]} is not in {self.root}", "run the migration again: it will be made anew") from None
        stamp = (stat.st_mtime_ns, stat.st_size)
        if self._seen.get(sha256) != stamp:
            if sha256_of(path) != sha256:
                path.unlink(missing_ok=True)
                raise BadArtifact(
                    f"object {sha256[:12]} was changed on disk and has been removed", "run the migration again: it will be made anew"
                )
            self._seen[sha256] = stamp
        return path

    def has(self, sha256: str) -> bool:
        """Whether the object is there and intact."""
        try:
            self.path(sha256)
        except BadArtifact:
            return False
        return True

    def array(self, sha256: str) -> np.ndarray:
        """A stored array; never unpickles."""
        return np.load(self.path(sha256), allow_pickle=False)

    def _object(self, sha256: str) -> Path:
        if len(sha256) != 64 or not set(sha256) <= set("0123456789abcdef"):
            raise BadArtifact(f"{sha256!r} is not a sha256")
        return self.root / "objects" / sha256[:2] / sha256

    # ---- stage results

    def find(self, stage: str, key: object, kind: type[F]) -> F | None:
        """What a stage made for this key, if it is there and everything it names is intact."""
        try:
            fact = kind.model_validate_json(self._key(stage, key).read_bytes())
        except (FileNotFoundError, ValueError):
            return None
        return fact if all(self.has(sha) for sha in objects_of(fact)) else None

    def cached(self, stage: str, key: object, kind: type[F], make: Callable[[], F]) -> F:
        """The stage's result for this key: found, or made once while others with the same key wait. Failures are not kept."""
        if (found := self.find(stage, key, kind)) is not None:
            return found
        with self.lock(f"{stage}-{digest_of(key)[:32]}"):
            if (found := self.find(stage, key, kind)) is not None:
                return found
            fact = make()
            write_atomically(self._key(stage, key), fact.model_dump_json(indent=1).encode())
            return fact

    def _key(self, stage: str, key: object) -> Path:
        return self.root / "keys" / stage / f"{digest_of(key)}.json"

    # ---- locks and scratch space

    def tidy(self) -> None:
        """Remove what a killed process left half-written more than an hour ago."""
        for path in [*self.root.glob(f"**/{NEW}*"), *self.root.glob("scratch/*")]:
            with suppress(FileNotFoundError):
                if datetime.now(UTC).timestamp() - path.stat().st_mtime > 3600:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()

    @contextmanager
    def lock(self, name: str, timeout_s: float = -1) -> Iterator[None]:
        """An exclusive lock across processes; the kernel frees it when its holder dies. Raises filelock.Timeout."""
        folder = self.root / "locks"
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / f"{name}.lock", timeout=timeout_s):
            yield

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """A folder that is removed afterwards."""
        root = self.root / "scratch"
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=root) as name:
            yield Path(name)


def objects_of(fact: Fact) -> list[str]:
    """Digests of the objects a fact names: `sha256` of an artifact, `samples` of a score or a repeat."""
    found = []
    for name, value in fact:
        if name in ("sha256", "samples") and isinstance(value, str):
            found.append(value)
        elif isinstance(value, Fact):
            found += objects_of(value)
        elif isinstance(value, tuple):
            found += [sha for item in value if isinstance(item, Fact) for sha in objects_of(item)]
    return found
