"""Names into facts: targets, recipes, policies, prices and requests from deployments/, or from the folder $CROSSGRADE_DEPLOYMENTS.

What a person writes is an `Ask`; `plan` resolves it into a `Request`, or says in one line what is wrong, where, and what would be right.
"""

import os
import tomllib
from collections.abc import Iterable
from datetime import date
from decimal import Decimal
from difflib import get_close_matches
from pathlib import Path
from typing import TypeVar

from pydantic import Field, ValidationError
from pydantic_core import ErrorDetails

from tasks.backends import WHERE
from tasks.errors import BadRequest
from tasks.facts import Cell, Fact, ModelSpec, Policy, Quote, Recipe, Request, Slo, Target
from tasks.price import find_quote, quotes

F = TypeVar("F", bound=Fact)
T = TypeVar("T")
DEPLOYMENTS = Path(os.environ.get("CROSSGRADE_DEPLOYMENTS") or Path(__file__).resolve().parent.parent / "deployments")
CHANGEABLE = ("min_saving", "utilisation", "migration_usd", "amortise_millions", "max_price_age_days", "finalists")
LOCAL_BACKENDS = tuple(name for name in WHERE if name != "simulated")


class Ask(Fact):
    """A migration in a person's words; the fields of a request file."""

    model: str
    baseline: str = Field("ort/fp32@cpu-2core", description="what serves the model today: backend/recipe@target")
    targets: tuple[str, ...] = Field(("cpu-2core", "cpu-1core"), description="where it might move to")
    backends: tuple[str, ...] = Field(("ort", "openvino", "inductor"), description="runtimes to try on local targets")
    recipes: tuple[str, ...] = Field((), description="precisions and how they are reached; empty means the whole ladder")
    policy: str = "default"
    changes: dict[str, Decimal] = Field(default_factory=dict, description="policy fields about money or utilisation, overridden")
    slo: Slo = Slo()


def targets() -> dict[str, Target]:
    """Targets by name, from deployments/targets.toml."""
    return _table(DEPLOYMENTS / "targets.toml", Target)


def recipes() -> dict[str, Recipe]:
    """Recipes by name, from deployments/recipes.toml."""
    return _table(DEPLOYMENTS / "recipes.toml", Recipe)


def policies() -> dict[str, Policy]:
    """Policies by name, from deployments/policies.toml."""
    return _table(DEPLOYMENTS / "policies.toml", Policy)


def prices() -> tuple[Quote, ...]:
    """The price table, deployments/prices.csv."""
    return quotes(DEPLOYMENTS / "prices.csv")


def read_ask(path: Path) -> Ask:
    """A request file. Raises BadRequest naming the file, the field and the nearest right one."""
    return _parse(Ask, _toml(path), str(path))


def ask_from(words: dict) -> Ask:
    """An Ask from command-line words."""
    return _parse(Ask, words, "what was asked for")


def plan(ask: Ask, spec: ModelSpec, on: date) -> Request:
    """Resolve an Ask. Raises BadRequest for a name that is not known or a matrix that is empty, NoQuote for a target without a price."""
    known, ladder = targets(), recipes()
    policy = _changed(pick("policy", ask.policy, policies()), ask.changes)
    baseline = _cell(ask.baseline, spec.id, known, ladder)
    wanted = [pick("target", name, known) for name in ask.targets]
    rungs = [pick("recipe", name, ladder) for name in ask.recipes or ladder]
    runtimes = [pick("backend", name, _by_name(LOCAL_BACKENDS)) for name in ask.backends]
    matrix = [
        Cell(model=spec.id, recipe=recipe, backend=backend, target=target)
        for target in wanted
        for backend in (["simulated"] if target.simulated else runtimes)
        for recipe in rungs
        if _makes_sense(recipe, backend, target, spec)
    ]
    candidates = tuple(dict.fromkeys(cell for cell in matrix if cell != baseline))
    if not candidates:
        raise BadRequest(*_why_empty(matrix, baseline, ask))
    table = prices()
    for target in {baseline.target, *(cell.target for cell in candidates)}:
        find_quote(table, target, on, policy.max_price_age_days)
    return Request(model=spec.id, model_digest=spec.digest, baseline=baseline, candidates=candidates, slo=ask.slo, policy=policy)


def pick(what: str, name: str, among: dict[str, T]) -> T:
    """`among[name]`, or BadRequest with the nearest right name and all of them."""
    if name in among:
        return among[name]
    near = get_close_matches(name, among, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise BadRequest(f"no {what} {name!r}", f"{hint}Known: {', '.join(among)}")


def _by_name(names: Iterable[str]) -> dict[str, str]:
    return {name: name for name in names}


def parse_cell(text: str) -> tuple[str, str, str]:
    """'backend/recipe@target' -> its three names."""
    backend, slash, rest = text.partition("/")
    recipe, at, target = rest.partition("@")
    if not (slash and at and backend and recipe and target):
        raise BadRequest(f"{text!r} is not a cell", "write backend/recipe@target, such as ort/fp32@cpu-2core")
    return backend, recipe, target


def _cell(text: str, model: str, known: dict[str, Target], ladder: dict[str, Recipe]) -> Cell:
    backend, recipe, target = parse_cell(text)
    pick("backend", backend, _by_name(WHERE))
    return Cell(model=model, recipe=pick("recipe", recipe, ladder), backend=backend, target=pick("target", target, known))


def _changed(policy: Policy, changes: dict[str, Decimal]) -> Policy:
    for name in changes:
        if name not in CHANGEABLE:
            raise BadRequest(f"{name!r} cannot be changed beside a policy", f"what can: {', '.join(CHANGEABLE)}")
    return _parse(Policy, {**policy.model_dump(), **changes}, f"policy {policy.name} with changes")


def _makes_sense(recipe: Recipe, backend: str, target: Target, spec: ModelSpec) -> bool:
    """Leaves out what nobody means: a recipe on a runtime it is not for, torch where there is no torch module."""
    if recipe.backends and backend not in recipe.backends:
        return False
    if target.simulation is not None:
        return recipe.precision in target.simulation.step_us
    needs_torch = backend in ("torch-eager", "inductor")
    return not needs_torch or (spec.has_torch and recipe.method == "none")


def _why_empty(matrix: list[Cell], baseline: Cell, ask: Ask) -> tuple[str, str]:
    if matrix:
        return (
            f"the only candidate is the baseline itself, {baseline.name}",
            "add a target, a backend or a recipe that differs from what serves the model today",
        )
    return (
        f"no candidate is left: targets {list(ask.targets)}, backends {list(ask.backends)}, recipes {list(ask.recipes) or 'all'}",
        "name at least one target, one backend and one recipe that fit together (crossgrade targets, crossgrade recipes)",
    )


def _table(path: Path, kind: type[F]) -> dict[str, F]:
    return {name: _parse(kind, {"name": name, **body}, f"{path.name} [{name}]") for name, body in _toml(path).items()}


def _toml(path: Path) -> dict:
    try:
        return tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise BadRequest(f"there is no file {path}") from None
    except IsADirectoryError:
        raise BadRequest(f"{path} is a folder", "give a TOML file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadRequest(f"{path} is not TOML: {error}") from None


def _parse(kind: type[F], body: object, where: str) -> F:
    try:
        return kind.model_validate(body)
    except ValidationError as error:
        raise BadRequest(f"{where}: {explain(error, kind.model_fields)}") from None


def explain(error: ValidationError, fields: Iterable[str]) -> str:
    """A validation error as one line: field, what is wrong, what was given, the nearest right field."""
    return "; ".join(_explain_one(one, list(fields)) for one in error.errors()[:3])


def _explain_one(one: ErrorDetails, fields: list[str]) -> str:
    place = ".".join(str(part) for part in one["loc"])
    if one["type"] == "extra_forbidden":
        near = get_close_matches(str(one["loc"][-1]), fields, n=1)
        return f"there is no field {place!r}" + (f"; did you mean {near[0]!r}?" if near else f"; fields: {', '.join(fields)}")
    if one["type"] == "missing":
        return f"field {place!r} is missing"
    return f"{place}: {one['msg'][0].lower()}{one['msg'][1:]}, got {one['input']!r}"
