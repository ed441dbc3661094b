"""The price table: a CSV of dated quotes. A bad row is an error with its place, a missing price is NoQuote, neither is ever 0."""

import csv
from collections.abc import Iterator, Sequence
from datetime import date
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Literal, cast, get_args

from tasks.errors import BadRequest, NoQuote
from tasks.facts import Quote, Target

COLUMNS = ("provider", "instance_type", "region", "tier", "per_hour", "currency", "source", "as_of")
TIERS: tuple[str, ...] = get_args(Quote.model_fields["tier"].annotation)
CURRENCIES: tuple[str, ...] = get_args(Quote.model_fields["currency"].annotation)
LEAST, MOST = Decimal("0.00001"), Decimal(1_000_000)  # dollars per hour that a machine may cost
SENTINELS = (Decimal(700),)  # what public catalogs write where they know no price (TPU rows of several of them)


def quotes(path: Path) -> tuple[Quote, ...]:
    """Every quote of a price table, in the file's order.

    Raises:
        BadRequest: the file is missing or not UTF-8, a column is missing or unknown, or a value is unusable; names file, line and column.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise BadRequest(f"cannot read the price table {path}: {error.strerror}", "name a CSV like deployments/prices.csv") from error
    except UnicodeDecodeError as error:
        raise BadRequest(f"{path} is not UTF-8 (byte {error.start})", "save the price table as UTF-8 CSV") from error
    return tuple(_rows(path, text))


def find_quote(known: Sequence[Quote], target: Target, on: date, max_age_days: int) -> Quote:
    """The price of a target on a day: the newest quote known that day; of two from one day, the one further down the table.

    A quote dated after `on` is ignored, so that a decision made again for an old day agrees with itself.

    Raises:
        NoQuote: there is none, or the newest is older than `max_age_days`.
    """
    wanted = (target.provider, target.instance_type, target.region, target.tier)
    what = f"{target.instance_type} {target.region}" + ("" if target.tier == "on_demand" else f" ({target.tier})")
    add = f"add a row for {what} to deployments/prices.csv"
    matching = [quote for quote in known if (quote.provider, quote.instance_type, quote.region, quote.tier) == wanted]
    usable = [quote for quote in matching if quote.as_of <= on]
    if not usable:
        later = f"; the first is of {min(q.as_of for q in matching)}" if matching else ""
        raise NoQuote(f"no {target.tier} price of {target.provider} {what} known on {on}{later}", add)
    newest = max(enumerate(usable), key=lambda item: (item[1].as_of, item[0]))[1]
    if (age_days := (on - newest.as_of).days) > max_age_days:
        raise NoQuote(f"the newest price of {what} is {age_days} days old ({newest.as_of}), the policy allows {max_age_days}", add)
    return newest


def _rows(path: Path, text: str) -> Iterator[Quote]:
    reader = csv.DictReader(text.splitlines(), strict=True)
    try:
        _check_header(path, reader.fieldnames or ())
        for row in reader:
            yield _quote(f"{path} line {reader.line_num}", row)
    except csv.Error as error:
        raise BadRequest(f"{path} is not CSV after line {reader.line_num}: {error}", "quote a value that contains a comma") from error


def _check_header(path: Path, header: Sequence[str]) -> None:
    if tuple(header) != COLUMNS:
        raise BadRequest(f"{path} line 1 has the columns {','.join(header) or '(none)'}", f"they must be {','.join(COLUMNS)}")


def _quote(where: str, row: dict[str, str | None]) -> Quote:
    if None in row or None in row.values():
        raise BadRequest(f"{where} does not have {len(COLUMNS)} values", "quote a value that contains a comma")
    values = {column: str(value).strip() for column, value in row.items()}
    for column in ("provider", "instance_type", "region", "source"):
        if not values[column]:
            raise BadRequest(f"{where}, column {column} is empty", "a price needs a SKU and a source")
    _one_of(where, "tier", values["tier"], TIERS)
    _one_of(where, "currency", values["currency"], CURRENCIES)
    return Quote(
        provider=values["provider"],
        instance_type=values["instance_type"],
        region=values["region"],
        tier=cast(Literal["on_demand", "spot", "reserved", "owned"], values["tier"]),
        per_hour=_price(where, values["per_hour"]),
        source=values["source"],
        as_of=_day(where, values["as_of"]),
    )


def _one_of(where: str, column: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise BadRequest(f"{where}, column {column}: {value!r} is unknown", f"known: {', '.join(known)}; currencies are never converted")


def _price(where: str, text: str) -> Decimal:
    here = f"{where}, column per_hour"
    try:
        price = Decimal(text)
    except InvalidOperation:
        raise BadRequest(f"{here}: {text!r} is not a number", "write dollars per hour, such as 0.526") from None
    if not price.is_finite() or price <= 0:
        raise BadRequest(f"{here}: {text} is not a price", "remove the row: an unknown price is not 0")
    if not LEAST <= price <= MOST:
        raise BadRequest(f"{here}: {text} is outside ${LEAST:f} to ${MOST:,f} an hour", "write dollars per hour, such as 0.526")
    if price in SENTINELS:
        raise BadRequest(f"{here}: {text} is what catalogs write for an unknown price", "remove the row, or write the real price")
    return price


def _day(where: str, text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise BadRequest(f"{where}, column as_of: {text!r} is not a date", "write YYYY-MM-DD") from None
