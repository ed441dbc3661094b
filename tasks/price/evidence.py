"""Price what was measured: the day's quote for each target, and the cost of each cell at its measured rate."""

from collections.abc import Sequence
from datetime import date

from tasks.errors import BadRequest, NoQuote
from tasks.facts import Cost, Evidence, Outcome, Quote, Request
from tasks.price.per_million import cost
from tasks.price.table import find_quote
from tasks.stats import Rate, throughput
from tasks.store import Store


def price(
    request: Request, outcomes: Sequence[Outcome], known: Sequence[Quote], store: Store, on: date
) -> tuple[tuple[Cost, ...], dict[str, str]]:
    """Costs of the measured cells at the prices known on a day, and for each that has none its cell digest with the reason."""
    costs, unpriced = [], {}
    for evidence in outcomes:
        if not isinstance(evidence, Evidence):
            continue
        try:
            quote = find_quote(known, evidence.cell.target, on, request.policy.max_price_age_days)
        except NoQuote as error:
            unpriced[evidence.cell.digest] = str(error)
            continue
        try:
            rate = rate_of(evidence, store, request.policy.confidence)
            is_baseline = evidence.cell == request.baseline
            costs.append(cost(evidence.cell, rate.value, rate.low, rate.high, quote, request.policy, baseline=is_baseline))
        except (OverflowError, BadRequest):  # an interval from nearly 0 to beyond all numbers
            repeats = len(evidence.timing.repeats)
            unpriced[evidence.cell.digest] = f"{repeats} repeats do not bound its rate at {request.policy.confidence:g}: more repeats"
    return tuple(costs), unpriced


def rate_of(evidence: Evidence, store: Store, confidence: float = 0.95) -> Rate:
    """Requests a second of a cell, with its interval over fresh processes."""
    repeats = evidence.timing.repeats
    samples = [store.array(repeat.samples) for repeat in repeats]
    return throughput(repeats, samples, evidence.timing.workload.batch, confidence)
