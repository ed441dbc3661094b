"""Libraries that not every machine has, imported when used."""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from types import ModuleType

from tasks.errors import MissingExtra


def installed(module: str) -> bool:
    """Whether a real module of that name exists.

    A folder without Python in it (our `mlflow/`) looks like a namespace package: `origin is None` tells it from a library.
    """
    spec = find_spec(module)
    return spec is not None and spec.origin is not None


def need(module: str, extra: str) -> ModuleType:
    """Import `module`, or raise MissingExtra with the command that installs it."""
    if not installed(module.split(".", maxsplit=1)[0]):
        raise MissingExtra(f"{module} is not installed", f"pip install -c deployments/constraints.txt -e '.[{extra}]'")
    return import_module(module)


def version_of(distribution: str) -> str:
    """The installed version of a distribution, or 'absent'."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "absent"
