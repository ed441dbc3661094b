"""A record's copy in MLflow: a parent run per migration, a child run per cell, a model version for the recommended engine.

Published twice it is one run; a copy that was cut short is made anew. The record is the truth: everything here can be rebuilt from it
with `crossgrade record push`. MlflowClient alone is used: the global functions would leave their choice of server to the process.
"""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from tasks import registry, runs, schema, tracking
from tasks.errors import BadRequest, PipelineError, Transient
from tasks.facts import Record
from tasks.store import Store

if TYPE_CHECKING:
    from mlflow import MlflowClient

log = logging.getLogger("crossgrade")


def publish(record: Record, store: Store, tracking_uri: str | None = None) -> str:
    """Copy a record to MLflow, or bring its copy up to date; returns the run's address, or '' without a server.

    Args:
        tracking_uri: default $MLFLOW_TRACKING_URI, else the SQLite file in the store.

    Raises:
        Transient: the server is away or busy.
        BadRequest: the server understood and refused.
    """
    uri = tracking_uri or default_uri(store)
    with store.lock(f"publish-{record.model.id}"), _in_our_words(record, uri), store.scratch() as scratch:
        copy = runs.Copy(_client(uri, store), _newest(record, store), store, scratch)
        experiment_id = _experiment(copy.client, record, store, uri)
        parent = copy.find(experiment_id) or copy.write(experiment_id)
        children = copy.children(experiment_id, parent)
        registry.register(copy, children)
        copy.bring_up_to_date(parent, children)
    return address(uri, f"/experiments/{experiment_id}/runs/{parent}")


def default_uri(store: Store) -> str:
    """$MLFLOW_TRACKING_URI, or the database that `crossgrade up` shows."""
    return os.environ.get("MLFLOW_TRACKING_URI") or tracking.sqlite_uri(store.root / "mlflow.db")


def address(uri: str, path: str) -> str:
    """An address in MLflow's UI, which opens on generative AI unless told otherwise; '' for a database without a server."""
    if not uri.startswith("http"):
        return ""
    return f"{tracking.shown(uri).rstrip('/')}/#{path}{'&' if '?' in path else '?'}workflowType=machine_learning"


def _newest(record: Record, store: Store) -> Record:
    """The record as it is now: a word given since the caller read it decides, however many publish at once."""
    path = store.root / "records" / record.id / "record.json"
    try:
        return schema.load(path.read_bytes(), str(path))
    except FileNotFoundError:  # a record that was read from elsewhere
        return record


@contextmanager
def _in_our_words(record: Record, uri: str) -> Iterator[None]:
    """Whatever MLflow and its database raise, as an error that says what to do, without passwords."""
    tracking.quieten()
    from mlflow.exceptions import MlflowException, RestException
    from sqlalchemy.exc import ArgumentError, SQLAlchemyError

    where = unquote(tracking.shown(uri).partition("?")[0])
    again = f"the record is safe; `crossgrade record push {record.id}` publishes it later"
    try:
        urlsplit(uri)
    except ValueError as error:
        raise BadRequest(f"{where} is no address: {error}", f"set MLFLOW_TRACKING_URI right; {again}") from error
    try:
        yield
    except PipelineError:
        raise
    except RestException as error:
        if error.get_http_status_code() < 500:
            raise BadRequest(f"MLflow at {where} refused {record.id}: {_first_line(error)}", again) from error
        raise Transient(f"MLflow at {where} failed: {_first_line(error)}", again) from error
    except (ArgumentError, ImportError) as error:  # no address, or one whose driver is not installed
        raise BadRequest(f"MLflow cannot use {where}: {_first_line(error)}", f"set MLFLOW_TRACKING_URI right; {again}") from error
    except (MlflowException, SQLAlchemyError, OSError) as error:
        if _is_file(uri) and not isinstance(error, OSError):
            again = f"If it fails again: move {where.partition(':///')[2]} away, then `crossgrade record push all` fills a new one"
        raise Transient(f"MLflow at {where} failed: {_first_line(error)}", again) from error


def _is_file(uri: str) -> bool:
    return uri.startswith("sqlite:")


def _first_line(error: Exception) -> str:
    return tracking.shown((str(error).splitlines() or [type(error).__name__])[0])[:300]


def _client(uri: str, store: Store) -> "MlflowClient":
    from mlflow import MlflowClient

    if uri == tracking.sqlite_uri(store.root / "mlflow.db"):
        tracking.database(store)
    return MlflowClient(tracking_uri=uri, registry_uri=uri)


def _experiment(client: "MlflowClient", record: Record, store: Store, uri: str) -> str:
    """The model's experiment. On this machine its artifacts lie in plain files, so that they open with and without a server."""
    name = f"crossgrade/{record.model.id}"
    found = client.get_experiment_by_name(name)
    if found is None:
        location = (store.root / "mlartifacts" / name.replace("/", "-")).as_uri() if _is_local(uri, store) else None
        tags = {"mlflow.note.content": f"{record.model.title}: one parent run per migration, one child run per cell."}
        return client.create_experiment(name, artifact_location=location, tags=tags)
    if found.artifact_location.startswith("mlflow-artifacts:") and not uri.startswith("http"):
        raise BadRequest(f"experiment {name} keeps its artifacts behind an MLflow server", "set MLFLOW_TRACKING_URI to its address")
    return found.experiment_id


def _is_local(uri: str, store: Store) -> bool:
    """Whether MLflow runs on this home: its database directly, or a loopback server over it."""
    if _is_file(uri):
        return True
    return urlsplit(uri).hostname in ("127.0.0.1", "localhost", "::1") and (store.root / "mlflow.db").exists()
