"""Prices are read strictly, the right one counts on a day, and a cost's parts add up."""

from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.errors import BadRequest, NoQuote
from tasks.facts import Cell, Cost, Margin, Policy, Quote, Recipe, Target
from tasks.price import cost, find_quote, quotes, usd_per_million
from tasks.price.evidence import price
from tasks.store import Store
from tests.builders import a_policy
from tests.fabricated import INT8, a_quote, a_request, a_timing, evidence

HEADER = "provider,instance_type,region,tier,per_hour,currency,source,as_of"
GOOD = "aws,c7a.large,us-east-1,on_demand,0.10264,USD,a list,2026-01-19"
TARGET = Target(
    name="cpu-2core", title="two cores", vendor="amd", arch="x86_64", threads=2, memory_gib=4,
    provider="aws", instance_type="c7a.large", region="us-east-1", work_pool="cpu-2core",
)  # fmt: skip
CELL = Cell(model="silero-vad", recipe=Recipe(name="fp32"), backend="ort", target=TARGET)
POLICY = Policy(name="default", margin=Margin(value=0.01, unit="points"), utilisation=0.65)


def table(tmp_path: Path, *rows: str, header: str = HEADER) -> Path:
    path = tmp_path / "prices.csv"
    path.write_text("\n".join((header, *rows)) + "\n")
    return path


def quote(per_hour: str, as_of: date) -> Quote:
    return Quote(
        provider="aws", instance_type="c7a.large", region="us-east-1", tier="on_demand", per_hour=Decimal(per_hour), source="s", as_of=as_of
    )


def test_the_shipped_table_prices_every_shipped_target():
    """Each row of deployments/prices.csv is usable."""
    root = Path(__file__).parent.parent
    known = quotes(root / "deployments" / "prices.csv")
    assert find_quote(known, TARGET, date(2026, 11, 30), 365).per_hour == Decimal("0.10264")


@pytest.mark.parametrize(
    ("row", "column"),
    [
        (GOOD.replace("0.10264", "-1"), "per_hour"),
        (GOOD.replace("0.10264", "0.00"), "per_hour"),
        (GOOD.replace("0.10264", "700.0"), "per_hour"),
        (GOOD.replace("0.10264", "NaN"), "per_hour"),
        (GOOD.replace("0.10264", "inf"), "per_hour"),
        (GOOD.replace("0.10264", "1e999999"), "per_hour"),
        (GOOD.replace("0.10264", "1e-28"), "per_hour"),
        (GOOD.replace("0.10264", ""), "per_hour"),
        (GOOD.replace("0.10264", "ten cents"), "per_hour"),
        (GOOD.replace("USD", "EUR"), "currency"),
        (GOOD.replace("2026-01-19", "19.1.2026"), "as_of"),
        (GOOD.replace("on_demand", "cheap"), "tier"),
        (GOOD.replace("a list", ""), "source"),
        (GOOD + ",more", "8 values"),
        ("aws,c7a.large", "8 values"),
    ],
)
def test_a_bad_row_is_an_error_with_its_place(tmp_path, row, column):
    """The error names the file, the line and the column."""
    with pytest.raises(BadRequest) as caught:
        quotes(table(tmp_path, GOOD, row))
    assert "prices.csv line 3" in caught.value.what
    assert column in caught.value.what


def test_unreadable_tables_are_explained(tmp_path):
    """A missing file, a wrong header and a binary file end as BadRequest."""
    with pytest.raises(BadRequest, match="cannot read"):
        quotes(tmp_path / "nothing.csv")
    with pytest.raises(BadRequest, match="line 1 has the columns"):
        quotes(table(tmp_path, GOOD, header="sku,price"))
    with pytest.raises(BadRequest, match="not CSV after line 1"):
        quotes(table(tmp_path, 'aws,"c7a.large'))
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadRequest, match="not UTF-8"):
        quotes(tmp_path / "binary.csv")


def test_the_newest_quote_known_on_the_day_decides():
    """A future quote is ignored; of two from one day the later row counts; an old day gets its old price again."""
    known = [quote("3", date(2026, 3, 1)), quote("1", date(2026, 1, 1)), quote("2", date(2026, 1, 1))]
    assert find_quote(known, TARGET, date(2026, 2, 1), 365).per_hour == 2
    assert find_quote(known, TARGET, date(2026, 3, 1), 365).per_hour == 3
    with pytest.raises(NoQuote, match="the first is of 2026-01-01"):
        find_quote(known, TARGET, date(2025, 12, 31), 365)


def test_a_missing_or_old_price_says_what_to_add():
    """NoQuote names the row that is missing, or the age and the limit."""
    with pytest.raises(NoQuote, match="add a row for c7a.large us-east-1 to deployments/prices.csv"):
        find_quote([], TARGET, date(2026, 1, 1), 365)
    with pytest.raises(NoQuote, match=r"366 days old \(2025-01-01\), the policy allows 365"):
        find_quote([quote("1", date(2025, 1, 1))], TARGET, date(2026, 1, 2), 365)
    assert find_quote([quote("1", date(2025, 1, 1))], TARGET, date(2026, 1, 1), 365).per_hour == 1


@pytest.mark.parametrize(
    ("per_hour", "rate", "used", "expected"),
    [
        ("0.8048", "13594.9", "0.65", 0.0252986),  # AWS g6.xlarge, MLPerf L4 ResNet-50 offline
        (Decimal(28000) / 730, "12000", "1", 0.887874),  # four A100 at $28,000 a month
        (Decimal(9800) / 730, "18000", "1", 0.207171),  # eight A10G at $9,800 a month
    ],
)
def test_worked_examples(per_hour, rate, used, expected):
    """The formula gives the worked numbers to 1e-5."""
    assert float(usd_per_million(Decimal(per_hour), Decimal(rate), Decimal(used))) == pytest.approx(expected, rel=1e-5)


def test_a_baseline_carries_no_migration():
    """The one-off cost is spread over the candidate's inferences alone, and its share is exact."""
    policy = POLICY.model_copy(update={"migration_usd": Decimal(2000), "amortise_millions": Decimal(10_000)})
    q = quote("0.10264", date(2026, 1, 1))
    candidate, baseline = cost(CELL, 500, 490, 510, q, policy), cost(CELL, 500, 490, 510, q, policy, baseline=True)
    assert candidate.usd_per_million - baseline.usd_per_million == Decimal("0.2")


@pytest.mark.parametrize("rates", [(0, 0, 1), (1, 2, 3), (1, -1, 2), (float("nan"), 1, 2), (1, 1, float("inf"))])
def test_a_rate_that_is_none_has_no_cost(rates):
    """A zero, negative, infinite or misplaced rate is refused; it never becomes a cost of 0."""
    with pytest.raises(BadRequest, match="is not a rate"):
        cost(CELL, *rates, quote("1", date(2026, 1, 1)), POLICY)


@given(
    cents=st.integers(1, 10_000_000),
    rate=st.floats(0.01, 1e6),
    spread=st.floats(0, 0.9),
    used=st.floats(0.01, 1),
    migration=st.integers(0, 10**6),
)
def test_parts_add_up(cents, rate, spread, used, migration):
    """Parts are never negative, sum to the rounded formula, and the interval holds the estimate."""
    policy = POLICY.model_copy(update={"utilisation": used, "migration_usd": Decimal(migration)})
    rent = quote(str(Decimal(cents) / 1000), date(2026, 1, 1))
    made: Cost = cost(CELL, rate, rate * (1 - spread), rate * (1 + spread), rent, policy)
    exact = usd_per_million(rent.per_hour, Decimal(repr(rate)), Decimal(repr(used)))
    share = Decimal(migration) / 1000
    assert all(part.usd_per_million >= 0 for part in made.parts)
    assert abs(made.usd_per_million - (exact + share)) <= Decimal("1e-12")
    assert made.low <= made.usd_per_million <= made.high
    assert all(part.usd_per_million.as_tuple().exponent >= -12 for part in made.parts)


def test_rounding_decides_nothing():
    """A fast cell at a small price: a saving of a tenth is a tenth at $0.000003 a million, too."""
    prices = [quote(per_hour, date(2026, 1, 1)) for per_hour in ("0.01", "0.009")]
    dear, cheap = (cost(CELL, 1e6, 1e6, 1e6, one, POLICY, baseline=True) for one in prices)
    assert 0 < cheap.high < dear.low < Decimal("0.00001")
    assert float(cheap.usd_per_million / dear.usd_per_million) == pytest.approx(0.9, rel=1e-6)


def test_the_largest_numbers_that_are_allowed_have_a_cost():
    """No amount that a policy and a price may hold ends in an arithmetic error."""
    policy = Policy(
        name="extreme", margin=POLICY.margin, utilisation=0.001, migration_usd=Decimal(10**12), amortise_millions=Decimal("0.001")
    )
    made = cost(CELL, 0.001, 0.0005, 0.002, quote("1000000", date(2026, 1, 1)), policy)
    assert made.usd_per_million == sum(part.usd_per_million for part in made.parts) > 10**15


def test_repeats_that_bound_no_rate_leave_the_cell_without_a_price(tmp_path):
    """Two repeats that differ tenfold, at 99.99% confidence: no interval, so no cost, and what to do about it."""
    store = Store(tmp_path)
    policy = a_policy(confidence=0.9999)
    request = a_request(policy=policy)
    quick, slow = (a_timing(store, median_ms, policy.valid).repeats[0] for median_ms in (0.5, 5.0))
    timing = a_timing(store, 1.0, policy.valid).model_copy(update={"repeats": (quick, slow)})
    costs, unpriced = price(request, [evidence(store, INT8, 1.0, timing=timing)], [a_quote("c7a.medium")], store, date(2026, 11, 30))
    assert costs == ()
    assert unpriced == {INT8.digest: "2 repeats do not bound its rate at 0.9999: more repeats"}
