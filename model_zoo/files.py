"""Files that arrive inside Python distributions, found without importing them and pinned by sha256."""

from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from tasks.errors import BadModel, MissingExtra
from tasks.facts import ModelSpec
from tasks.store import sha256_of

HOW_TO_GET = {"recbole": "make zoo-extra"}  # everything else comes with `make install`


def package_folder(module: str) -> Path:
    """The folder of an installed package; the package is not imported, so its own dependencies are not needed.

    Raises:
        MissingExtra: the package is not installed; says which command brings it.
    """
    spec = find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtra(f"the package {module} is not installed", f"`{HOW_TO_GET.get(module, 'make install')}` brings it")
    return Path(spec.submodule_search_locations[0])


def pinned_file(spec: ModelSpec, path: Path) -> Path:
    """`path`, after its bytes were compared with the hash pinned for its name in `spec.files`.

    Raises:
        BadModel: the file is missing or is another one than was tried.
    """
    if not path.is_file():
        raise BadModel(f"{spec.id}: {path} is missing", "install the pinned version again: `make install`")
    return _same_bytes(spec.id, path, spec.files[path.name], path.stat().st_mtime_ns)


@lru_cache(maxsize=64)
def _same_bytes(model: str, path: Path, expected: str, _changed_ns: int) -> Path:
    found = sha256_of(path)
    if found != expected:
        raise BadModel(
            f"{model}: {path.name} has sha256 {found}, but {expected} is pinned",
            "install the pinned version again; a changed file is never loaded",
        )
    return path
