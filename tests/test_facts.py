"""The vocabulary: frozen, closed, finite, and identified by digest."""

import math

import pytest
from pydantic import ValidationError

from tasks.facts import Check, Margin, Policy, Slo
from tests.builders import TOP1, a_cell, a_policy, a_recipe, a_target


def test_equal_facts_have_equal_digests_and_changed_ones_do_not():
    """The digest follows the contents."""
    assert a_cell().digest == a_cell().digest
    assert a_cell().digest != a_cell("openvino").digest


def test_a_copy_with_changes_has_a_digest_of_its_own():
    """A cached digest must not travel into a changed copy: approvals are bound to it."""
    cell = a_cell()
    before = cell.digest
    assert cell.model_copy(update={"recipe": a_recipe("int8-static")}).digest != before
    assert cell.digest == before


def test_facts_with_dicts_can_be_members_of_sets():
    """Simulated targets hold a table of step times."""
    assert len({a_target(simulated=True), a_target(simulated=True), a_target()}) == 2


@pytest.mark.parametrize("bad", [math.inf, math.nan])
def test_no_infinity_enters_a_fact(bad):
    """Unknown is a type; infinities and NaN are refused."""
    with pytest.raises(ValidationError):
        Check(name="cost", verdict="pass", observed=bad, detail="")


def test_a_misspelt_field_is_refused():
    """A typo in a file is an error with the field's name."""
    with pytest.raises(ValidationError, match="latency"):
        Slo(latency=3)  # type: ignore[call-arg]


def test_a_fact_cannot_be_changed():
    """Frozen."""
    with pytest.raises(ValidationError):
        a_policy().confidence = 0.8


def test_a_metric_has_its_own_margin_or_the_policys():
    """Margins are looked up by metric name."""
    own = Margin(value=0.02, unit="relative")
    policy = a_policy(margins={"perplexity": own})
    assert policy.margin_for(TOP1) == policy.margin
    assert policy.margin_for(TOP1.model_copy(update={"name": "perplexity"})) == own
    assert Policy.model_validate_json(policy.model_dump_json()) == policy


@pytest.mark.parametrize(
    "changes",
    [
        {"confidence": 0.99999999},
        {"utilisation": 1e-28},
        {"migration_usd": "1e40"},
        {"amortise_millions": "1e-30"},
        {"max_evidence_age_days": 10**9},
        {"valid": {"batch": 8}},
        {"screen": {"mode": "screen", "batch": 2}},
        {"screen": {"min_samples": 8}},
    ],
)
def test_a_policy_has_bounds(changes):
    """What would overflow, price another batch than the measured one, or let a screen decide is no policy."""
    with pytest.raises(ValidationError, match=next(iter(changes))):
        a_policy(**changes)
