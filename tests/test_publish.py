"""A record's copy in MLflow: whole, made once, brought up to date by approvals, the same with and without a server."""

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from tasks.errors import BadRequest, Transient
from tasks.facts import Approval, Record
from tasks.publish import address, publish
from tasks.record import append, write
from tasks.store import Store
from tests.fabricated import WHEN, a_record

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parent.parent
PARAMS = {"backend", "recipe", "precision", "method", "target", "instance_type", "threads", "mode", "state", "verdict"}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """One home for all tests here: creating MLflow's database takes seconds."""
    return Store(tmp_path_factory.mktemp("home"))


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Run in an empty folder without a server in the environment."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return tmp_path


def client(store: Store):
    from mlflow import MlflowClient

    return MlflowClient(f"sqlite:///{store.root}/mlflow.db", f"sqlite:///{store.root}/mlflow.db")


def runs_of(store: Store, record: Record, kind: str) -> list:
    experiment = client(store).get_experiment_by_name(f"crossgrade/{record.model.id}")
    mine = f"tags.`crossgrade.record` = '{record.id}' and tags.`crossgrade.kind` = '{kind}'"
    return list(client(store).search_runs([experiment.experiment_id], mine))


def word(record: Record, answer: str) -> Approval:
    return Approval(decision=record.decision.digest, answer=answer, approver="Ada Lovelace", comment="looks right", at=WHEN)


def aliases(store: Store, record: Record) -> dict[str, str]:
    return client(store).get_registered_model(record.model.id).aliases


def written(store: Store, record_id: str, **changes) -> Record:
    record = a_record(store, record_id, **changes)
    write(record, store)
    return record


def test_a_copy_is_whole_and_made_once(store, nowhere):
    """One parent, a child per cell, parameters on every child, units in metrics, artifacts; twice is the same; nothing beside it."""
    record = written(store, "20261101-whole")
    assert publish(record, store) == publish(record, store) == ""
    (parent,), children = runs_of(store, record, "migration"), runs_of(store, record, "cell")
    assert parent.info.status == "FINISHED"
    assert len(children) == len(record.outcomes)
    assert all(set(child.data.params) == PARAMS for child in children)
    assert all(child.data.tags["mlflow.parentRunId"] == parent.info.run_id for child in children)
    best = next(child for child in children if child.data.params["state"] == "recommended")
    assert best.data.metrics["p50_ms"] == pytest.approx(0.6, rel=0.01)
    assert best.data.metrics["usd_per_million"] == pytest.approx(0.017132, rel=1e-4)
    assert {"p99_upper_ms", "throughput_per_s", "top1", "top1_development", "engine_mib"} <= set(best.data.metrics)
    lost = next(child for child in children if child.data.params["state"] == "unmeasured")
    assert (lost.info.status, lost.data.metrics) == ("FAILED", {})
    assert "nncf" in lost.data.tags["mlflow.note.content"]
    names = {item.path for item in client(store).list_artifacts(parent.info.run_id)}
    assert names == {"record.json", "decision.md", "plots"}
    assert {item.path for item in client(store).list_artifacts(best.info.run_id)} == {"samples.npz", "engine"}
    assert list(nowhere.iterdir()) == []


def test_the_note_and_the_record_say_the_same(store):
    """The note begins with the verdict and leads to the comparison of all cells; the artifact is the record, byte by byte."""
    record = written(store, "20261102-note")
    publish(record, store)
    (parent,) = runs_of(store, record, "migration")
    note = parent.data.tags["mlflow.note.content"]
    assert note.startswith("# PROPOSE: Digits CNN")
    assert "#/compare-runs?runs=%5B%22" in note
    assert "workflowType=machine_learning" in parent.data.tags["crossgrade.compare"]
    kept = client(store).download_artifacts(parent.info.run_id, "record.json")
    assert Path(kept).read_bytes() == (store.root / "records" / record.id / "record.json").read_bytes()


def test_aliases_follow_the_answer(store):
    """Proposed is challenger, approved is champion, reopened is neither; the version names the record and the engine."""
    record = written(store, "20261103-alias", created=WHEN + timedelta(days=1))
    publish(record, store)
    version = aliases(store, record)["challenger"]
    found = client(store).get_model_version(record.model.id, version)
    assert found.tags["crossgrade.record"] == record.id
    engine = record.outcome(record.decision.recommended_digest).engine
    assert found.tags["crossgrade.engine_sha256"] == engine.sha256
    copy = Path(found.source.removeprefix("file://")) / f"engine.{engine.format}"
    assert copy.read_bytes() == store.path(engine.sha256).read_bytes()

    publish(append(record.id, word(record, "approve"), store), store)
    assert aliases(store, record) == {"champion": version}
    (parent,) = runs_of(store, record, "migration")
    assert parent.data.tags["crossgrade.status"] == "approved"
    assert parent.data.tags["crossgrade.approver"] == "Ada Lovelace"
    assert "looks right" in parent.data.tags["mlflow.note.content"]

    publish(append(record.id, word(record, "reopen"), store), store)
    assert aliases(store, record) == {}


def test_an_old_record_does_not_take_the_alias(store):
    """Publishing all records again, newest first, leaves the alias with the newest."""
    new = written(store, "20261105-new", created=WHEN + timedelta(days=3))
    old = written(store, "20261104-old", created=WHEN + timedelta(days=2))
    publish(new, store)
    holder = aliases(store, new)["challenger"]
    publish(old, store)
    assert aliases(store, new)["challenger"] == holder


def test_a_copy_that_was_cut_short_is_made_anew(store):
    """A parent that never ended, with one child, does not stay beside the new copy."""
    record = written(store, "20261106-cut")
    where = client(store)
    publish(written(store, "20261106-first"), store)
    experiment = where.get_experiment_by_name(f"crossgrade/{record.model.id}").experiment_id
    tags = {"crossgrade.record": record.id, "crossgrade.kind": "migration"}
    parent = where.create_run(experiment, tags=tags).info.run_id
    where.create_run(experiment, tags=tags | {"crossgrade.kind": "cell", "crossgrade.cell": "x", "mlflow.parentRunId": parent})
    publish(record, store)
    assert [run.info.status for run in runs_of(store, record, "migration")] == ["FINISHED"]
    assert len(runs_of(store, record, "cell")) == len(record.outcomes)


def test_a_held_record_has_no_model_version(store):
    """Nothing is registered that is not recommended."""
    record = a_record(store, "20261107-held")
    decision = record.decision.model_copy(update={"verdict": "hold", "recommended": None, "recommended_digest": None})
    held = record.model_copy(update={"decision": decision, "model": record.model.model_copy(update={"id": "held-model"})})
    publish(held, store)
    assert client(store).search_registered_models("name = 'held-model'") == []


def test_a_server_that_is_away_loses_nothing(store):
    """The error is one that is retried, and names the command that publishes later."""
    record = a_record(store, "20261108-away")
    with pytest.raises(Transient, match="crossgrade record push 20261108-away"):
        publish(record, store, f"http://127.0.0.1:{free_port()}")


def test_an_experiment_behind_a_server_is_not_written_past_it(store):
    """Artifacts that only a server can store are refused without one, with the way out."""
    record = a_record(store, "20261109-behind")
    record = record.model_copy(update={"model": record.model.model_copy(update={"id": "behind-server"})})
    client(store).create_experiment("crossgrade/behind-server", artifact_location="mlflow-artifacts:/77")
    with pytest.raises(BadRequest, match="set MLFLOW_TRACKING_URI"):
        publish(record, store)


def test_a_word_given_meanwhile_decides(store):
    """Who publishes what was read before a rejection copies the rejection, and leaves no alias."""
    record = written(store, "20261112-late", created=WHEN + timedelta(days=5))
    publish(record, store)
    append(record.id, word(record, "reject"), store)
    publish(record, store)
    (parent,) = runs_of(store, record, "migration")
    assert parent.data.tags["crossgrade.status"] == "rejected"
    found = client(store).search_model_versions(f"run_id != '' and name = '{record.model.id}'")
    assert not [each for each in found if each.tags["crossgrade.record"] == record.id and each.aliases]


def test_killed_in_its_first_write_it_can_be_published_later(tmp_path):
    """MLflow never finishes a database that was half made: it is made aside and renamed whole."""
    home = tmp_path / "home"
    process = subprocess.Popen([sys.executable, "-m", "tasks.tracking", str(home), "/bin/true"], cwd=ROOT)
    while not list(home.glob("scratch/*/mlflow.db")) and process.poll() is None:
        time.sleep(0.01)
    process.kill()
    process.wait()
    assert not (home / "mlflow.db").exists()
    publish(record := written(Store(home), "20261113-killed"), Store(home))
    assert len(runs_of(Store(home), record, "migration")) == 1


def test_a_broken_database_is_said_with_the_way_out(tmp_path):
    """One that MLflow itself left half-made before: what to move away, and how a new one is filled."""
    with sqlite3.connect(tmp_path / "mlflow.db") as broken:
        broken.execute("create table experiments (x int)")
    with pytest.raises(Transient, match=rf"move {tmp_path}/mlflow.db away, then `crossgrade record push all`"):
        publish(written(Store(tmp_path), "20261114-broken"), Store(tmp_path))


def test_a_home_of_any_name_keeps_its_database(tmp_path):
    """Blanks, quotes, escapes and question marks are characters of a folder, not of an address."""
    home = tmp_path / "a%20b ?#é'\"x"
    record = written(Store(home), "20261115-odd")
    assert publish(record, Store(home)) == ""
    assert (home / "mlflow.db").exists()
    assert list(tmp_path.iterdir()) == [home]
    assert list((home / "mlartifacts").glob("*/*/artifacts/record.json"))


@pytest.mark.parametrize("uri", ["http://[::1", "postgresql:", "mysql+nothing://ada:secret@db/x", "nonsense://ada:secret@x"])
def test_an_address_that_cannot_be_used_is_one_clear_error(store, uri):
    """Not a traceback, and no password."""
    with pytest.raises((BadRequest, Transient), match="crossgrade record push") as raised:
        publish(a_record(store, "20261116-bad"), store, uri)
    assert "secret" not in str(raised.value)


def test_no_address_shows_a_password(store):
    """Neither on success nor when the server is away."""
    assert address("http://ada:s@cret@mlflow:5000", "/x") == "http://mlflow:5000/#/x?workflowType=machine_learning"
    with pytest.raises(Transient) as raised:
        publish(a_record(store, "20261117-hidden"), store, f"http://ada:secret@127.0.0.1:{free_port()}")
    assert "secret" not in str(raised.value)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def server(store: Store, tmp_path: Path) -> Iterator[str]:
    """A real MLflow server on the store's database, as `crossgrade up` starts it."""
    publish(a_record(store, "20261110-before"), store)  # the database exists
    address = f"http://127.0.0.1:{(port := free_port())}"
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", f"sqlite:///{store.root}/mlflow.db", "--artifacts-destination", str(store.root / "mlartifacts")]
    env = {**os.environ, "DO_NOT_TRACK": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with (
        (tmp_path / "server.log").open("wb") as log,
        subprocess.Popen(command, env=env, stderr=log, stdout=log, start_new_session=True) as process,
    ):
        try:
            wait_for(f"{address}/health", process)
            yield address
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def wait_for(url: str, process: subprocess.Popen) -> None:
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except OSError:
            time.sleep(0.2)
    pytest.fail("the MLflow server did not start")


@pytest.mark.server
def test_with_and_without_a_server_it_is_one_experiment(store, server):
    """What was written into SQLite is found through the server and the other way round; artifacts open over HTTP."""
    record = written(store, "20261111-served", created=WHEN + timedelta(days=9))
    url = publish(record, store, server)
    run_id = url.partition("/runs/")[2].partition("?")[0]
    assert url.startswith(server)
    assert url.endswith("workflowType=machine_learning")
    (parent,) = runs_of(store, record, "migration")
    assert parent.info.run_id == run_id
    with urllib.request.urlopen(f"{server}/get-artifact?path=record.json&run_uuid={run_id}") as answer:
        assert json.load(answer)["record"]["id"] == record.id
    assert "challenger" in aliases(store, record)
    assert publish(record, store) == ""
    assert len(runs_of(store, record, "migration")) == 1
    publish(append(record.id, word(record, "approve"), store), store, server)
    assert aliases(store, record)["champion"]
