"""MLflow's database in the home: its address, and how it comes to be whole or not at all.

    python -m tasks.tracking HOME COMMAND ...    makes it where there is none, then becomes COMMAND: how `crossgrade up` starts MLflow

MLflow builds a new database in dozens of steps that it cannot resume: killed between two of them, it never opens the file again.
"""

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from tasks.store import Store

USER = re.compile(r"(?<=://)[^/\s]*@")
ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_LOGGING_LEVEL": "WARNING",  # a first use of SQLite tells of every table
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",  # the default of 7 waits for minutes when the server is away
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
}


def quieten() -> None:
    """Settings that MLflow reads when it is imported; what the user has set stays."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)


def shown(text: str) -> str:
    """A text or an address without the names and passwords of its addresses."""
    return USER.sub("", text)


def sqlite_uri(file: Path) -> str:
    """A database file as SQLAlchemy's URL: as it is where that reads back the same, else quoted (`a?b%20` may be a folder).

    Slashes are quoted too: MLflow makes the folder that it reads in the URL, without unquoting it.
    """
    from sqlalchemy.engine import make_url

    plain = f"sqlite:///{file}"
    return plain if make_url(plain).database == str(file) else f"sqlite:///{quote(str(file), safe='')}"


def database(store: Store) -> Path:
    """The home's database, made elsewhere and renamed when it is whole; other processes wait meanwhile."""
    file = store.root / "mlflow.db"
    if file.exists():
        return file
    with store.lock("mlflow.db"), store.scratch() as scratch:
        if not file.exists():
            quieten()
            from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

            made = SqlAlchemyStore(sqlite_uri(scratch / file.name), "mlflow-artifacts:/")  # what a server gives its default experiment
            made.engine.dispose()
            (scratch / file.name).replace(file)
    return file


def main(argv: Sequence[str]) -> None:
    """Make sure that the database is there, then become the server over it."""
    database(Store(Path(argv[0])))
    os.execv(argv[1], [*argv[1:]])  # noqa: S606  the command comes from flows/services.py


if __name__ == "__main__":
    main(sys.argv[1:])
