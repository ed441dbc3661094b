"""The decision card in a terminal: the verdict first, then what it rests on, then where to look."""

from rich.box import ROUNDED, SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from tasks.facts import Record
from tasks.report.rows import Row, bills, files, focus, headline, lines, rows, shown_usd
from tasks.store import Store
from tasks.units import change, ms, usd

COLOURS = {"proposed": "green", "approved": "green", "held": "red", "rejected": "red", "inconclusive": "yellow", "reopened": "yellow"}
SIGNS = {"pass": ("pass", "green"), "fail": ("FAIL", "red"), "unknown": ("unknown", "yellow")}
STATES = {"recommended": "bold green", "baseline": "bold", "held": "red", "undecided": "yellow", "inaccurate": "red", "fell back": "red"}
WIDTH = 100


def show_card(record: Record, store: Store, console: Console) -> None:
    """Print the card of a record; without colours it says the same."""
    console.print(card(record, store), width=min(console.width, WIDTH))


def card(record: Record, store: Store) -> RenderableType:
    """Everything a person needs in order to answer, on one screen."""
    parts = [_banner(record), *_checks(record), *_money(record), *_matrix(record, store), *_missing(record), *_where(record, store)]
    return Group(*parts)


def _banner(record: Record) -> Panel:
    colour = COLOURS[record.status]
    words = [Text(record.decision.summary)]
    for word in record.approvals:
        comment = f": {word.comment}" if word.comment else ""
        words.append(Text(f"{word.answer} by {word.approver} on {word.at:%Y-%m-%d %H:%M} ({word.via}){comment}", style="italic"))
    title = Text(f" {headline(record)} ", style=f"bold reverse {colour}")
    subtitle = Text(record.id, style="dim")
    return Panel(Group(*words), title=title, title_align="left", subtitle=subtitle, subtitle_align="right", box=ROUNDED, padding=(1, 2))


def _checks(record: Record) -> list[RenderableType]:
    if (finding := focus(record)) is None:
        return []
    table = _table("check", "verdict", "observed", "bounds", "limit", "count")
    told = lines(finding, record.model.metric)
    for line in told:
        sign, colour = SIGNS[line.verdict]
        texts = (line.observed or line.detail, line.bounds, line.limit, line.size) if line.observed else ("", "", "", line.size)
        table.add_row(line.name, Text(sign, style=f"bold {colour}"), *map(Text, texts))
    notes = [Text(f"{line.name}: {line.detail}" + (f" -> {line.remedy}" if line.remedy else "")) for line in told if line.verdict != "pass"]
    role = "recommended" if finding.cell == record.decision.recommended else "nearest candidate"
    return [_heading(f"Checks of {finding.cell} ({role})"), table, *(Padding(note, (0, 2)) for note in notes)]


def _money(record: Record) -> list[RenderableType]:
    if not (told := bills(record)):
        return []
    finding = focus(record)
    table = _table("USD per million", "", "", "how")
    table.columns[1].header, table.columns[2].header = Text("today"), Text(finding.cell.split("@")[-1] if finding else "")
    for column in table.columns[1:3]:
        column.justify, column.no_wrap = "right", True
    for bill in told:
        style = "bold" if bill.part == "total" else ""
        how = _share(bill.before and bill.before.usd_per_million, bill.after and bill.after.usd_per_million)
        how = how if bill.part == "total" else (bill.after or bill.before).how  # type: ignore[union-attr]
        table.add_row(bill.part, shown_usd(bill.before), shown_usd(bill.after), Text(how), style=style)
    return [_heading(f"Cost of a million inferences (each: {record.model.request})"), table]


def _share(before: object, after: object) -> str:
    return change(float(after), float(before)) if before and after else ""  # type: ignore[arg-type]


def _matrix(record: Record, store: Store) -> list[RenderableType]:
    metric = record.model.metric.name
    table = _table("cell", "state", "p50", "p99 <=", metric, "USD/M")
    for column in table.columns[2:]:
        column.justify, column.no_wrap = "right", True
    told = rows(record, store)
    for row in told:
        table.add_row(Text(row.cell), Text(row.state, style=STATES.get(row.state, "dim")), *_numbers(row))
    notes = [Text.assemble((f"{row.cell}  ", "bold"), row.why) for row in told if row.state not in ("baseline", "recommended")]
    if any(row.accuracy is not None and not row.judged for row in told):
        notes.insert(0, Text("* on development data: it ranks, it does not judge", style="dim"))
    return [_heading("All cells"), table, *(Padding(note, (0, 2)) for note in notes)]


def _numbers(row: Row) -> list[str]:
    accuracy = "" if row.accuracy is None else f"{row.accuracy:.4g}" + (" " if row.judged else "*")
    cost = usd(row.cost.usd_per_million) if row.cost else ""
    return [ms(row.p50_ms) if row.p50_ms else "", ms(row.p99_ms) if row.p99_ms else "", accuracy, cost]


def _missing(record: Record) -> list[RenderableType]:
    items = record.decision.missing
    return [_heading("What is missing"), *(Padding(Text(f"- {item}"), (0, 2)) for item in items)] if items else []


def _where(record: Record, store: Store) -> list[RenderableType]:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for what, path in files(record, store):
        grid.add_row(what, Text(str(path)))
    if record.status == "proposed":
        grid.add_row("answer", Text(f"crossgrade approve {record.id}"))
    return [_heading("Where to look"), Padding(grid, (0, 2))]


def _heading(words: str) -> Text:
    return Text(f"\n{words}", style="bold")


def _table(*headers: str) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=True, padding=(0, 1), header_style="dim")
    for header in headers:
        table.add_column(header, overflow="fold")
    return table
