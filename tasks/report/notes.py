"""What stands under a table once: why cells went no further, which prices, which machine."""

import re
from collections.abc import Iterable, Sequence

import numpy as np

from tasks.facts import Cell, Cost, Evidence, Record
from tasks.report.rows import Row, focus

NUMBER = re.compile(r"[-+]?\d+(?:,\d{3})*(?:\.\d+)?")
ALIKE = (0.02, 0.05)  # relative and absolute: what two builds of one recipe differ by, and no more


def reasons(record: Record, told: Iterable[Row]) -> list[tuple[str, str]]:
    """(cells, sentence) of all but the baseline and the candidate in focus: cells that say the same are named together."""
    candidate = focus(record)
    groups: list[list[Row]] = []
    for row in told:
        if not row.why or (candidate and row.outcome.cell.digest == candidate.cell_digest):
            continue
        group = next((group for group in groups if _alike(group[0], row)), None)
        if group is None:
            groups.append([row])
        else:
            group.append(row)
    groups = [sorted(group, key=lambda row: row.cell) for group in groups]
    return [(cells_in_words([row.outcome.cell for row in group]), _sentence(group)) for group in groups]


def cells_in_words(cells: Sequence[Cell]) -> str:
    """'ort/fp32@cpu-1core', or of several 'int8-static-conv (openvino, ort on cpu-1core, cpu-2core)'."""
    if len(cells) == 1:
        return cells[0].name
    recipes: dict[str, list[tuple[str, str]]] = {}
    for cell in sorted(cells, key=lambda cell: cell.name):
        recipes.setdefault(cell.recipe.name, []).append((cell.backend, cell.target.name))
    where = [(recipe, "; ".join(f"{backends} on {targets}" for backends, targets in _gathered(at))) for recipe, at in recipes.items()]
    return "; ".join(f"{names} ({places})" for names, places in _gathered(where))


def prices(record: Record) -> list[str]:
    """Each price behind the bill, with its region, its date and its source: 'c7a.large $0.10264/h: aws us-east-1, on demand, ...'."""
    where = []
    for quote in dict.fromkeys(cost.quote for cost in compared_costs(record)):
        offer = f"{quote.provider} {quote.region}, {quote.tier.replace('_', ' ')}, as of {quote.as_of:%Y-%m-%d}, source: {quote.source}"
        where.append((f"{quote.instance_type} ${quote.per_hour}/h", offer))
    return [f"{rented}: {offer}" for rented, offer in _gathered(where)]


def measured_on(record: Record) -> str:
    """Which machine the numbers come from and what it is priced as; empty where nothing real was measured."""
    candidate = focus(record)
    digests = {record.request.baseline.digest, candidate.cell_digest if candidate else ""}
    seen = [outcome for outcome in record.outcomes if isinstance(outcome, Evidence) and outcome.cell.digest in digests]
    real = {outcome.cell.name: outcome.host for outcome in seen if not outcome.cell.target.simulated}
    machines = dict.fromkeys(f"{host.accelerator or host.cpu}, {host.cores} core{'' if host.cores == 1 else 's'}" for host in real.values())
    if not machines:
        return ""
    rented = dict.fromkeys(cost.quote for cost in compared_costs(record) if cost.cell in real)
    offers = _gathered([(quote.instance_type, f"{quote.provider} {quote.region}") for quote in rented])
    priced = " and ".join(f"{place} {instances}" for instances, place in offers)
    claim = f"; priced as {priced}: the claim holds where such an instance has such a processor" if priced else ""
    return f"Measured on {' and '.join(machines)}{claim}."


def compared_costs(record: Record) -> list[Cost]:
    """Costs of the baseline and of the candidate in focus, where there is a price."""
    candidate, costs = focus(record), {cost.cell: cost for cost in record.costs}
    names = dict.fromkeys([record.request.baseline.name, candidate.cell if candidate else ""])
    return [costs[name] for name in names if name in costs]


def _alike(first: Row, second: Row) -> bool:
    """The same sentence, or the same recipe's with figures that hardly differ: one engine on another target."""
    if first.why == second.why:
        return True
    if first.outcome.cell.recipe != second.outcome.cell.recipe or NUMBER.sub("#", first.why) != NUMBER.sub("#", second.why):
        return False
    these, those = ([float(number.replace(",", "")) for number in NUMBER.findall(row.why)] for row in (first, second))
    return bool(np.allclose(these, those, *ALIKE))


def _sentence(group: Sequence[Row]) -> str:
    """The first one's; where the others' figures differ a little, that is said."""
    same = all(row.why == group[0].why for row in group)
    return group[0].why if same else f"{group[0].why} (figures of the first)"


def _gathered(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Names that go with the same things, beside those things: (a, x), (a, y), (b, x), (b, y) -> ('a, b', 'x, y')."""
    things: dict[str, list[str]] = {}
    for name, thing in pairs:
        things.setdefault(name, []).append(thing)
    names: dict[str, list[str]] = {}
    for name, found in things.items():
        names.setdefault(", ".join(found), []).append(name)
    return [(", ".join(those), found) for found, those in names.items()]
