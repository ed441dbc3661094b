"""The zoo by name; an entry's module is imported when it is first asked for.

A built-in entry is a file of this folder that defines ENTRY: `silero_vad.py` is `silero-vad`. Dropping a file here adds a model.
Models of users are tables in deployments/models.toml, and in the file that $CROSSGRADE_MODELS names (`model_zoo/user.py`).
"""

import re
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path

from model_zoo.facts import Entry
from tasks.errors import BadRequest

HERE = Path(__file__).resolve().parent


def built_in() -> dict[str, str]:
    """Name -> module of every file here that defines ENTRY; nothing is imported."""
    found = [path.stem for path in sorted(HERE.glob("*.py")) if re.search(r"^ENTRY\b", path.read_text(encoding="utf-8"), re.MULTILINE)]
    return {stem.replace("_", "-"): f"model_zoo.{stem}" for stem in found}


def names() -> list[str]:
    """Every model that can be asked for: the built-in ones first, then those of users."""
    return [*built_in(), *_user_tables()]


def entry(name: str) -> Entry:
    """The entry of that name.

    Raises:
        BadRequest: no model has that name, or two have.
        BadModel: a user's table cannot be understood, or names files that are not usable.
    """
    modules, tables = built_in(), _user_tables()
    if name in modules:
        return import_module(modules[name]).ENTRY
    if name in tables:
        from model_zoo.user import user_entry

        return user_entry(name, *tables[name])
    near = get_close_matches(name, [*modules, *tables], n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise BadRequest(f"no model {name!r}", f"{hint}known models: {', '.join([*modules, *tables])}")


def _user_tables() -> dict[str, tuple[dict[str, object], Path]]:
    from model_zoo.user import user_tables

    return user_tables(taken=built_in())
