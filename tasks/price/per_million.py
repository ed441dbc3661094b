"""Cost of a million inferences in parts that add up, in Decimal from end to end."""

import math
from decimal import ROUND_HALF_EVEN, Decimal, localcontext

from tasks.errors import BadRequest
from tasks.facts import Cell, Cost, CostPart, Policy, Quote

MILLION = Decimal(1_000_000)
SECONDS_PER_HOUR = Decimal(3600)
GRAIN = Decimal("1e-12")  # dollars: far below what decides, so that rounding never does, and the parts of a cost add up exactly


def usd_per_million(per_hour: Decimal, rate_per_s: Decimal, utilisation: Decimal = Decimal(1)) -> Decimal:
    """`1e6 * P / (3600 * T * u)`: dollars for a million inferences at T per second on a device that is busy a share u of the time."""
    return MILLION * per_hour / (SECONDS_PER_HOUR * rate_per_s * utilisation)


def cost(cell: Cell, rate_per_s: float, rate_low: float, rate_high: float, quote: Quote, policy: Policy, *, baseline: bool = False) -> Cost:  # noqa: PLR0917 a fixed stage signature
    """Cost per million inferences of a cell on its rented instance.

    Args:
        rate_per_s: completed inferences per second, with its interval [rate_low, rate_high].
        baseline: what runs today needs no migration, so that part is 0.

    Raises:
        BadRequest: a rate is not positive and finite, or lies outside its interval.
    """
    _check_rates(cell, rate_per_s, rate_low, rate_high)
    rates = [Decimal(repr(float(rate))) for rate in (rate_per_s, rate_high, rate_low)]  # a higher rate is the lower cost
    used = Decimal(repr(policy.utilisation))
    busy = [_stored(usd_per_million(quote.per_hour, rate)) for rate in rates]
    idle = [_stored(usd_per_million(quote.per_hour, rate, used)) - part for rate, part in zip(rates, busy, strict=True)]
    price = f"${quote.per_hour}/h of {quote.instance_type}"
    parts = (
        _part("compute", busy, f"1e6 x {price} / (3600 x {rate_per_s:,.1f}/s); power and facility are in the rent"),
        _part("idle capacity", idle, f"compute x (1/{policy.utilisation:g} - 1): the device is busy {policy.utilisation:.0%} of the time"),
        _migration(policy, baseline),
    )
    return Cost(cell=cell.name, quote=quote, parts=parts)


def _migration(policy: Policy, baseline: bool) -> CostPart:
    if baseline:
        return _part("migration", [Decimal(0)] * 3, "runs today: nothing to migrate")
    share = _stored(policy.migration_usd / policy.amortise_millions)
    return _part("migration", [share] * 3, f"${policy.migration_usd} spread over {policy.amortise_millions} million inferences")


def _part(name: str, amounts: list[Decimal], how: str) -> CostPart:
    value, low, high = amounts
    return CostPart(name=name, usd_per_million=value, low=low, high=high, how=how)


def _stored(amount: Decimal) -> Decimal:
    with localcontext(prec=60):  # a quotient has 28 digits; before the point there may be many
        return amount.quantize(GRAIN, rounding=ROUND_HALF_EVEN)


def _check_rates(cell: Cell, rate: float, low: float, high: float) -> None:
    if not all(math.isfinite(number) and number > 0 for number in (rate, low, high)) or not low <= rate <= high:
        raise BadRequest(
            f"{cell.name}: {rate:g} per second in [{low:g}, {high:g}] is not a rate with its interval", "measure the cell again"
        )
