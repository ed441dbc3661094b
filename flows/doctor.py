"""What works here: backends, targets and their prices, and the one command that adds each missing thing."""

from datetime import UTC, datetime

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from tasks import catalog
from tasks.backends import WHERE, backend
from tasks.errors import NoQuote
from tasks.facts import Cell, Target
from tasks.optional import version_of
from tasks.price import find_quote
from tasks.store import home


def examine(console: Console) -> None:
    """Print what `crossgrade doctor` found."""
    console.print(backends_table())
    for name, reason in _reasons():
        console.print(Text.assemble("  ", (name, "bold"), f"  {reason}"))
    console.print(targets_table())
    console.print(f"home: {home()} (set CROSSGRADE_HOME to keep it elsewhere)", highlight=False, markup=False)


def backends_table() -> Table:
    """Each backend on each target: works here, needs something (the reasons stand below the table), or is not meant for it."""
    table = Table(Column("backend", no_wrap=True), "versions", *catalog.targets(), title="Backends on targets", title_justify="left")
    for name in WHERE:
        versions = ", ".join(f"{dist} {version_of(dist)}" for dist in backend(name).distributions)
        table.add_row(name, versions, *(_word(name, target) for target in catalog.targets().values()))
    return table


def targets_table() -> Table:
    """Targets with the price that decides today."""
    table = Table(Column("target", no_wrap=True), "what", "cores", "price", "as of", "work pool", title="Targets", title_justify="left")
    prices, policy = catalog.prices(), catalog.policies()["default"]
    for target in catalog.targets().values():
        try:
            quote = find_quote(prices, target, datetime.now(UTC).date(), policy.max_price_age_days)
            price = (Text(f"{quote.per_hour} {quote.currency}/h"), Text(f"{quote.as_of}"))
        except NoQuote as error:
            price = (Text(str(error), style="red"), Text())
        title = Text(target.title, style="magenta" if target.simulated else "")
        table.add_row(target.name, title, str(target.threads), *price, target.work_pool)
    return table


def _word(name: str, target: Target) -> str:
    if not _meant_for(name, target):
        return "[dim]-[/]"
    return "[red]needs something[/]" if _missing(name, target) else "[green]works here[/]"


def _reasons() -> list[tuple[str, str]]:
    found = [(name, _missing(name, target)) for name in WHERE for target in catalog.targets().values() if _meant_for(name, target)]
    return list(dict.fromkeys((name, reason) for name, reason in found if reason))


def _meant_for(name: str, target: Target) -> bool:
    return (name == "simulated") == target.simulated


def _missing(name: str, target: Target) -> str | None:
    return backend(name).missing(Cell(model="any", recipe=catalog.recipes()["fp32"], backend=name, target=target))
