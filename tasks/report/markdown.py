"""The decision card as GitHub-flavoured markdown: for a Prefect artifact and for the note of an MLflow run."""

from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence

from tasks.facts import Record
from tasks.report.notes import measured_on, prices, reasons
from tasks.report.rows import Row, bills, focus, headline, lines, places, rows, shown_usd
from tasks.store import Store
from tasks.units import level, ms, usd


def markdown(record: Record, store: Store, images: Mapping[str, bytes] | None = None, links: Mapping[str, str] | None = None) -> str:
    """Verdict first, then checks, cost, what is missing, cells with reasons, and where to look.

    Args:
        images: title -> PNG, embedded as data: URIs; leave them out where a page shows artifacts itself.
        links: words -> address, shown under the verdict.
    """
    parts = [
        f"# {headline(record)}: {_safe(record.model.title)}",
        _safe(record.decision.summary),
        " · ".join(f"[{_safe(words)}]({url})" for words, url in (links or {}).items() if url),
        *(_word(record)),
        *_checks(record),
        *_money(record),
        *_missing(record),
        *_matrix(record, store),
        *(f"![{_safe(title)}](data:image/png;base64,{b64encode(png).decode()})" for title, png in (images or {}).items()),
        *_where(record, store),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _word(record: Record) -> list[str]:
    return [
        f"> **{word.answer}** by {_safe(word.approver)}, {word.at:%Y-%m-%d %H:%M}, via {_safe(word.via)}. {_safe(word.comment)}".rstrip()
        for word in record.approvals
    ]


def _checks(record: Record) -> list[str]:
    if (finding := focus(record)) is None:
        return []
    body, words = [], []
    for line in lines(finding, record.model.metric):
        verdict = line.verdict if line.verdict == "pass" else line.verdict.upper()
        body.append((line.name, verdict, line.observed, line.bounds, line.limit, line.size))
        words.append((line.name, line.detail + (f": {line.remedy}" if line.remedy else "")))
    role = "recommended" if finding.cell == record.decision.recommended else "nearest candidate"
    header = ("check", "verdict", "observed", "bounds", "limit", "seen on")
    return [f"## Checks of `{finding.cell}` ({role})", _table(header, body), _list(words), _safe(measured_on(record))]


def _money(record: Record) -> list[str]:
    if not (told := bills(record)):
        return []
    finding = focus(record)
    body = [(bill.part, shown_usd(bill.before), shown_usd(bill.after), bill.change) for bill in told]
    header = ("USD", f"today: {record.request.baseline.name}", f"after: {finding.cell}" if finding else "no candidate", "change")
    words = [(bill.part, bill.formula) for bill in told if bill.formula] + [("price", price) for price in prices(record)]
    title = f"## Cost of a million inferences\n\nEach: {_safe(record.model.request)}."
    return [title, _table(header, body, numbers=(1, 2, 3)), _list(words)]


def _matrix(record: Record, store: Store) -> list[str]:
    header = ("cell", "state", "p50", "p99 at most", record.model.metric.name, "USD per million")
    told = rows(record, store)
    star = "\\* on development data: it ranks, it does not judge"
    why_not = reasons(record, told)
    return [
        "## All cells",
        _table(header, map(_row, told), numbers=(2, 3, 4, 5)),
        star if any(row.accuracy is not None and not row.judged for row in told) else "",
        "### Why not the others" if why_not else "",
        _list(why_not),
    ]


def _row(row: Row) -> tuple[str, ...]:
    accuracy = "" if row.accuracy is None else level(row.accuracy) + ("" if row.judged else "*")
    times = (ms(row.p50_ms) if row.p50_ms else "", ms(row.p99_ms) if row.p99_ms else "")
    return row.cell, row.state, *times, accuracy, usd(row.cost.usd_per_million) if row.cost else ""


def _missing(record: Record) -> list[str]:
    items = record.decision.missing
    return ["## What is missing", "\n".join(f"- {_safe(item)}" for item in items)] if items else []


def _where(record: Record, store: Store) -> list[str]:
    found = [f"- {what}: {_safe(where) if what == 'MLflow' else f'`{where}`'}" for what, where in places(record, store)]
    if record.status == "proposed":
        found[-1] += ", or resume the approval's flow run in Prefect"
    return ["## Where to look", "\n".join(found)]


def _list(told: Iterable[tuple[str, str]]) -> str:
    return "\n".join(f"- **{_safe(what)}**: {_safe(words)}" for what, words in told)


def _table(header: Sequence[str], body: Iterable[Sequence[str]], numbers: Sequence[int] = ()) -> str:
    rule = ["---:" if column in numbers else "---" for column in range(len(header))]
    return "\n".join("| " + " | ".join(map(_safe, cells)) + " |" for cells in (header, rule, *body))


def _safe(text: str) -> str:
    """A text in a table's cell or a line: one line, no column, no HTML and no markdown of its own."""
    text = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    for sign in "\\|*_`[]~":
        text = text.replace(sign, f"\\{sign}")
    return text
