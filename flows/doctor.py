"""What works here: backends, targets and their prices, and the one command that adds each missing thing."""

from datetime import UTC, datetime

from rich.console import Console
from rich.table import Table

from tasks import catalog
from tasks.backends import WHERE, backend
from tasks.errors import NoQuote
from tasks.facts import Cell, Target
from tasks.optional import version_of
from tasks.price import find_quote, quotes
from tasks.store import home


def examine(console: Console) -> None:
    """Print the three tables of `crossgrade doctor`."""
    console.print(backends_table())
    console.print(targets_table())
    console.print(f"home: {home()} (set CROSSGRADE_HOME to keep it elsewhere)")


def backends_table() -> Table:
    """Each backend on each kind of target: works here, or what it needs."""
    table = Table("backend", "versions", *catalog.targets(), title="Backends on targets", title_justify="left")
    for name in WHERE:
        runtime = backend(name)
        versions = ", ".join(f"{dist} {version_of(dist)}" for dist in runtime.distributions)
        table.add_row(name, versions, *(_works(name, target) for target in catalog.targets().values()))
    return table


def targets_table() -> Table:
    """Targets with the price that decides today."""
    table = Table("target", "what", "cores", "price", "as of", "work pool", title="Targets", title_justify="left")
    prices, policy = quotes(catalog.DEPLOYMENTS / "prices.csv"), catalog.policies()["default"]
    for target in catalog.targets().values():
        try:
            quote = find_quote(prices, target, datetime.now(UTC).date(), policy.max_price_age_days)
            price = (f"{quote.per_hour} {quote.currency}/h {quote.tier.replace('_', ' ')}", f"{quote.as_of}")
        except NoQuote as error:
            price = (f"[red]{error}[/]", "")
        title = f"[magenta]{target.title}[/]" if target.simulated else target.title
        table.add_row(target.name, title, str(target.threads), *price, target.work_pool)
    return table


def _works(name: str, target: Target) -> str:
    recipe = catalog.recipes()["fp32"]
    reason = backend(name).missing(Cell(model="any", recipe=recipe, backend=name, target=target))
    return "[green]works here[/]" if reason is None else f"[dim]{reason}[/]"
