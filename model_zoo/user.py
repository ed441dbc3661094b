"""Models of users, from TOML."""

from collections.abc import Collection
from pathlib import Path

from model_zoo.facts import Entry


def user_tables(taken: Collection[str]) -> dict[str, tuple[dict[str, object], Path]]:  # noqa: ARG001
    """Tables by name."""
    return {}


def user_entry(name: str, table: dict[str, object], folder: Path) -> Entry:
    """The entry of a table."""
    raise NotImplementedError
