"""The record's file format: a version, one step from each version to the next, and no way to read what was changed by hand.

History of RECORD_VERSION:
    1  the first: {"version", "sha256", "record"}, the sha256 over the canonical JSON of the record

A new version adds a line above, a step below and a golden file in tests/golden. Old versions load for ever; a newer one is refused.
"""

import json
from collections.abc import Callable
from typing import Any

from pydantic import ValidationError

from tasks.errors import BadArtifact
from tasks.facts import Record, digest_of

RECORD_VERSION = 1
Body = dict[str, Any]

STEPS: dict[int, Callable[[Body], Body]] = {}
"""version -> the function that turns a record's body of that version into the next one's."""

EDITED = "a record is never edited: run the migration again, or restore the file"


def dump(record: Record) -> bytes:
    """A record as its file's bytes."""
    body = record.model_dump(mode="json")
    return json.dumps({"version": RECORD_VERSION, "sha256": digest_of(body), "record": body}, indent=1, allow_nan=False).encode() + b"\n"


def load(data: bytes, where: str) -> Record:
    """The record in a file's bytes; `where` names the file in errors.

    Raises:
        BadArtifact: not a record, changed by hand, or written by a newer Crossgrade.
    """
    version, body = _opened(data, where)
    for step in range(version, RECORD_VERSION):
        body = STEPS[step](body)
    try:
        return Record.model_validate_json(json.dumps(body))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise BadArtifact(f"{where} is not a record of version {version}: {place}: {first['msg']}", EDITED) from error


def _opened(data: bytes, where: str) -> tuple[int, Body]:
    try:
        file = json.loads(data)
        version, digest, body = file["version"], file["sha256"], file["record"]
        intact = type(version) is int and isinstance(body, dict) and version >= 1
        same = intact and digest_of(body) == digest
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise BadArtifact(f"{where} is not a record file", "a record is {version, sha256, record} in JSON") from error
    if not intact:
        raise BadArtifact(f"{where} is not a record file", "a record is {version, sha256, record} in JSON")
    if version > RECORD_VERSION:
        raise BadArtifact(f"{where} is of version {version}, this Crossgrade reads up to {RECORD_VERSION}", "update Crossgrade to read it")
    if not same:
        raise BadArtifact(f"{where} was edited by hand: its contents do not match its sha256", EDITED)
    return version, body
