"""Every version of the record file loads for ever, and a newer one is refused by its number."""

import json
from pathlib import Path

import pytest

from tasks.errors import BadArtifact
from tasks.facts import digest_of
from tasks.schema import RECORD_VERSION, STEPS, dump, load

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("version", range(1, RECORD_VERSION + 1))
def test_old_records_load_for_ever(version):
    """The golden file of each version is read, and says what it always said."""
    record = load((GOLDEN / f"record.v{version}.json").read_bytes(), "golden")
    assert record.decision.recommended == "ort/int8-static-conv@cpu-1core"
    assert record.status == "approved"
    assert str(record.costs[0].quote.per_hour) == "0.10264"


def test_every_version_has_a_step_to_the_next():
    """A version without a step would strand its records."""
    assert set(STEPS) == set(range(1, RECORD_VERSION))


def test_the_current_golden_file_is_written_as_it_is_read():
    """Reading and writing a record of this version gives the same bytes: nothing is lost on the way."""
    data = (GOLDEN / f"record.v{RECORD_VERSION}.json").read_bytes()
    assert dump(load(data, "golden")) == data


def changed(**changes) -> bytes:
    return json.dumps(json.loads((GOLDEN / "record.v1.json").read_bytes()) | changes).encode()


def test_a_newer_version_is_refused_by_name():
    """The number that was met, the number that is understood, and what to do."""
    with pytest.raises(BadArtifact, match=f"is of version 99, this Crossgrade reads up to {RECORD_VERSION}. update Crossgrade"):
        load(changed(version=99), "record.json")


def test_an_unknown_field_is_refused():
    """A record with a right sha256 but a field nobody knows is named by its field."""
    body = json.loads((GOLDEN / "record.v1.json").read_bytes())["record"] | {"surprise": 1}
    with pytest.raises(BadArtifact, match="surprise"):
        load(changed(record=body, sha256=digest_of(body)), "record.json")


@pytest.mark.parametrize("version", [0, -1, True, 1.5, None])
def test_a_version_is_a_number_from_one(version):
    """Neither zero nor a text is a version."""
    with pytest.raises(BadArtifact, match="not a record file"):
        load(changed(version=version), "record.json")
