"""The decision card in a terminal: the verdict first, then what it rests on, then where to look."""

from rich.box import ROUNDED, SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from tasks.facts import Record
from tasks.report.notes import measured_on, prices, reasons
from tasks.report.rows import Row, bills, focus, headline, lines, places, rows, shown_usd
from tasks.store import Store
from tasks.units import level, ms, usd

COLOURS = {"proposed": "green", "approved": "green", "held": "red", "rejected": "red", "inconclusive": "yellow", "reopened": "yellow"}
SIGNS = {"pass": ("pass", "green"), "fail": ("FAIL", "red"), "unknown": ("unknown", "yellow")}
STATES = {"recommended": "bold green", "baseline": "bold", "held": "red", "undecided": "yellow", "inaccurate": "red", "fell back": "red"}
WIDTH = 100
NUMBERS = 48  # columns of the matrix beside the names


def show_card(record: Record, store: Store, console: Console) -> None:
    """Print the card of a record; without colours it says the same."""
    width = min(console.width, WIDTH)
    console.print(card(record, store, width), width=width)


def card(record: Record, store: Store, width: int = WIDTH) -> RenderableType:
    """Everything a person needs in order to answer, the weightiest first."""
    told = rows(record, store)
    parts = [_banner(record), *_checks(record), *_money(record), *_missing(record), *_matrix(record, told, width), *_reasons(record, told)]
    return Group(*parts, *_where(record, store))


def _banner(record: Record) -> Panel:
    colour = COLOURS[record.status]
    words = [Text(record.decision.summary)]
    for word in record.approvals:
        comment = f": {word.comment}" if word.comment else ""
        words.append(Text(f"{word.answer} by {word.approver} on {word.at:%Y-%m-%d %H:%M} ({word.via}){comment}", style="italic"))
    title = Text(f" {headline(record)} ", style=f"bold reverse {colour}")
    subtitle = Text(record.id, style="dim")
    return Panel(Group(*words), title=title, title_align="left", subtitle=subtitle, subtitle_align="right", box=ROUNDED, padding=(0, 2))


def _checks(record: Record) -> list[RenderableType]:
    if (finding := focus(record)) is None:
        return []
    table = _table("check", "verdict", "observed", "bounds", "limit", "seen on")
    told = lines(finding, record.model.metric)
    for line in told:
        sign, colour = SIGNS[line.verdict]
        table.add_row(line.name, Text(sign, style=f"bold {colour}"), *map(Text, (line.observed, line.bounds, line.limit, line.size)))
    notes = [f"{line.name}: {line.detail}" + (f" -> {line.remedy}" if line.remedy else "") for line in told if line.verdict != "pass"]
    role = "recommended" if finding.cell == record.decision.recommended else "nearest candidate"
    return [_heading(f"Checks of {finding.cell} ({role})"), table, *_notes(*notes, measured_on(record), style="")]


def _money(record: Record) -> list[RenderableType]:
    if not (told := bills(record)):
        return []
    finding = focus(record)
    table = _table("USD", f"today:\n{record.request.baseline.name}", f"after:\n{finding.cell if finding else 'no candidate'}", "change")
    for column in table.columns[1:]:
        column.justify = "right"
    for bill in told:
        style = "bold" if bill.part == "total" else ""
        table.add_row(bill.part, shown_usd(bill.before), shown_usd(bill.after), bill.change, style=style)
    formulas = [f"{bill.part}: {bill.formula}" for bill in told if bill.formula]
    title = _heading(f"Cost of a million inferences, each: {record.model.request}")
    return [title, table, *_notes(*formulas, *(f"price: {price}" for price in prices(record)))]


def _matrix(record: Record, told: list[Row], width: int) -> list[RenderableType]:
    table = _table("cell", "state", "p50", "p99 at\nmost", record.model.metric.name, "USD per\nmillion")
    for column in table.columns[2:]:
        column.justify, column.no_wrap = "right", True
    for row in told:
        name = row.cell if len(row.cell) <= width - NUMBERS else row.cell.replace("@", "\n  @")
        table.add_row(Text(name), Text(row.state, style=STATES.get(row.state, "dim")), *_numbers(row))
    screened = any(row.accuracy is not None and not row.judged for row in told)
    return [_heading("All cells"), table, *_notes("* on development data: it ranks, it does not judge" if screened else "")]


def _numbers(row: Row) -> list[str]:
    accuracy = "" if row.accuracy is None else level(row.accuracy) + (" " if row.judged else "*")
    cost = usd(row.cost.usd_per_million) if row.cost else ""
    return [ms(row.p50_ms) if row.p50_ms else "", ms(row.p99_ms) if row.p99_ms else "", accuracy, cost]


def _reasons(record: Record, told: list[Row]) -> list[RenderableType]:
    if not (found := reasons(record, told)):
        return []
    return [_heading("Why not the others"), *(Padding(Text.assemble((cells, "bold"), f": {why}"), (0, 2)) for cells, why in found)]


def _missing(record: Record) -> list[RenderableType]:
    items = record.decision.missing
    return [_heading("What is missing"), *(Padding(Text(f"- {item}"), (0, 2)) for item in items)] if items else []


def _where(record: Record, store: Store) -> list[RenderableType]:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for what, where in places(record, store):
        grid.add_row(what, Text(where))
    return [_heading("Where to look"), Padding(grid, (0, 2))]


def _heading(words: str) -> Text:
    return Text(f"\n{words}", style="bold")


def _notes(*notes: str, style: str = "dim") -> list[RenderableType]:
    """Lines under a table; empty ones are left out."""
    return [Padding(Text(note, style=style), (0, 2)) for note in notes if note]


def _table(*headers: str) -> Table:
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    for header in headers:
        table.add_column(Text(header), overflow="fold", vertical="bottom")
    return table
