"""What is proposed, held or left open, and why: each gate alone, and the whole."""

import re
from decimal import Decimal

import numpy as np
import pytest

from tasks.decide import decide, shortlist
from tasks.facts import Check, Decision, Evidence, Margin, Metric, Placement, Unmeasured
from tasks.store import Store
from tests.builders import a_cell, a_policy
from tests.fabricated import BASELINE, INT8, ONE_CORE, TOP1, TWO_CORES, a_request, a_score, a_timing, costs_of, evidence, matrix


@pytest.fixture
def store(tmp_path) -> Store:
    return Store(tmp_path)


def judged(store: Store, baseline: Evidence, candidate: Evidence, **request) -> Decision:
    """The decision on one candidate."""
    asked = a_request((candidate.cell,), **request)
    return decide(asked, [baseline, candidate], costs_of(asked, [baseline, candidate]), {}, store)


def gate(decision: Decision, name: str) -> Check:
    return next(check for check in decision.findings[0].checks if check.name == name)


def test_a_cheaper_equal_candidate_is_proposed(store):
    """All checks pass: the summary says from where to where, for how much, and how sure."""
    request, outcomes, costs = matrix(store)
    decision = decide(request, outcomes, costs, {}, store)
    assert (decision.verdict, decision.recommended) == ("propose", "ort/int8-static-conv@cpu-1core")
    assert "Move digits-cnn from ort/fp32@cpu-2core to ort/int8-static-conv@cpu-1core" in decision.summary
    assert "$0.0171 per million instead of $0.120 (-86%, at least -85%)" in decision.summary
    assert "top1 0.974 against 0.975 (-0.10 points, 95% bounds" in decision.summary
    assert re.search(r"; p99 at most 0\.\d\d ms \(limit 50 ms\)\.$", decision.summary)
    assert decision.missing == ()


def test_what_does_not_change_is_called_unchanged(store):
    """Equal accuracy is one number, not a number against itself."""
    decision = judged(store, evidence(store, BASELINE, 2.1), evidence(store, INT8, 0.6))
    assert "top1 stays 0.975 (95% bounds" in decision.summary
    assert "against" not in decision.summary


def test_every_candidate_has_a_finding_with_its_reason(store):
    """The refused, the slower, the unbuilt and the simulated each say what stopped them."""
    request, outcomes, costs = matrix(store)
    reasons = {finding.cell: finding.reason for finding in decide(request, outcomes, costs, {}, store).findings}
    assert "refused on accuracy: top1 0.1 against 0.975 (-87.5 points" in reasons["ort/int8-dynamic@cpu-1core"]
    assert "accurate, but slower than ort/int8-static-conv@cpu-1core: 713/s against 1,664/s" in reasons["ort/int8-static@cpu-1core"]
    assert "nncf 3.1.0 cannot quantize If" in reasons["openvino/int8-nncf@cpu-1core"]
    assert reasons["simulated/int8-static@sim-l4"] == "validity: its target is simulated"


def test_the_order_of_the_evidence_does_not_matter(store):
    """The same evidence in another order is the same decision, by digest."""
    request, outcomes, costs = matrix(store)
    assert decide(request, outcomes, costs, {}, store).digest == decide(request, outcomes[::-1], costs[::-1], {}, store).digest


def test_changed_evidence_is_another_decision(store):
    """An approval is bound to the evidence: another measurement has another digest."""
    request, outcomes, costs = matrix(store)
    again = [evidence(store, BASELINE, 2.1001), *outcomes[1:]]
    assert decide(request, outcomes, costs, {}, store).evidence != decide(request, again, costs, {}, store).evidence


@pytest.mark.parametrize(
    ("right", "verdict", "end"), [(3896, "pass", "propose"), (3862, "unknown", "inconclusive"), (3700, "fail", "hold")]
)
def test_accuracy_by_paired_non_inferiority(store, right, verdict, end):
    """Inside the margin passes, across it is unknown with the pairs needed, beyond it fails."""
    decision = judged(store, evidence(store, BASELINE, 2.1), evidence(store, INT8, 0.6, right))
    assert (gate(decision, "accuracy").verdict, decision.verdict) == (verdict, end)
    if verdict == "unknown":
        assert "pairs" in gate(decision, "accuracy").remedy
        assert any("pairs" in missing for missing in decision.missing)


def test_a_relative_margin_scales_with_the_baseline(store):
    """One per cent of 0.5 is half a point: 0.8 points worse passes one point and fails one per cent."""
    before, after = evidence(store, BASELINE, 2.1, 2000), evidence(store, INT8, 0.6, 1968)
    assert gate(judged(store, before, after), "accuracy").limit == pytest.approx(-0.01)
    relative = a_policy(margin=Margin(value=0.01, unit="relative"))
    assert gate(judged(store, before, after, policy=relative), "accuracy").limit == pytest.approx(-0.005)


def test_a_metric_where_lower_is_better(store):
    """Perplexity may rise by its margin and no more."""
    metric = Metric(name="perplexity", unit="window", higher_is_better=False, transform="exp")
    policy = a_policy(margin=Margin(value=0.02, unit="relative"))

    def measured(cell, loss):
        made = evidence(store, cell, 2.1 if cell == BASELINE else 0.6)
        losses = np.stack([np.random.default_rng(0).normal(loss, 0.1, 500) * 100, np.full(500, 100.0)], axis=1)
        return made.model_copy(
            update={"evaluation": a_score(store, made.engine, 0, metric=metric, samples=store.put_array(losses), count=500)}
        )

    better, worse = (judged(store, measured(BASELINE, 3), measured(INT8, loss), policy=policy) for loss in (2.99, 3.1))
    assert (gate(better, "accuracy").verdict, gate(worse, "accuracy").verdict) == ("pass", "fail")


def test_fidelity_never_approves(store):
    """Agreement with the FP32 model is not accuracy, however perfect."""
    metric = TOP1.model_copy(update={"fidelity": True})
    pair = [
        made.model_copy(update={"evaluation": a_score(store, made.engine, 4000, metric=metric)})
        for made in (evidence(store, BASELINE, 2.1), evidence(store, INT8, 0.6))
    ]
    decision = judged(store, *pair)
    assert decision.verdict == "inconclusive"
    assert gate(decision, "accuracy").remedy == "give the model labelled data"


def test_latency_against_the_limit(store):
    """The upper estimate decides; a p99 beyond the limit holds."""
    pair = evidence(store, BASELINE, 2.1), evidence(store, INT8, 0.6)
    assert judged(store, *pair, limit_ms=1).verdict == "propose"
    refused = gate(judged(store, *pair, limit_ms=0.5), "latency")
    assert refused.verdict == "fail"
    assert refused.detail == f"p99 {refused.observed:.2f} ms (limit 0.5 ms)"


def test_too_few_samples_say_how_many_are_missing(store):
    """p99 does not exist on 500 samples: unknown, with what is missing and how long it takes."""
    decision = judged(store, evidence(store, BASELINE, 2.1), evidence(store, INT8, 0.6, samples=100))
    assert gate(decision, "latency").detail == "not enough samples for p99: have 500, need 662"
    assert gate(decision, "latency").remedy.startswith("162 more samples, about 1 s")
    assert any("162 more samples" in missing for missing in decision.missing)


@pytest.mark.parametrize(("median_ms", "verdict"), [(0.6, "pass"), (3.75, "unknown"), (8.0, "fail")])
def test_cost_needs_a_sure_saving(store, median_ms, verdict):
    """Upper bound against lower bound less the saving: an overlap is unknown, never a saving."""
    decision = judged(store, evidence(store, BASELINE, 2.1), evidence(store, INT8, median_ms))
    assert gate(decision, "cost").verdict == verdict


def test_a_missing_price_is_unknown_with_its_reason(store):
    """No quote: the cost is unknown and the decision inconclusive, with the row to add."""
    outcomes = [evidence(store, BASELINE, 2.1), evidence(store, INT8, 0.6)]
    request = a_request()
    costs = costs_of(request, outcomes)[:1]
    decision = decide(request, outcomes, costs, {INT8.digest: "add a row for c7a.medium"}, store)
    assert decision.verdict == "inconclusive"
    assert decision.missing == ("ort/int8-static-conv@cpu-1core: add a row for c7a.medium",)


def test_one_off_costs_count_against_the_candidate(store):
    """A saving that the migration itself eats up is no saving."""
    policy = a_policy(migration_usd=Decimal(1000), amortise_millions=Decimal(1000))
    assert gate(judged(store, evidence(store, BASELINE, 2.1), evidence(store, INT8, 0.6), policy=policy), "cost").verdict == "fail"


@pytest.mark.parametrize(
    ("changes", "verdict", "words"),
    [
        ({"nodes_elsewhere": 4, "elsewhere": ("GridSample",)}, "fail", "90.0% of nodes"),
        ({"device": "cuda:0"}, "fail", "cpu with 1 thread was asked for"),
        ({"threads": 8}, "fail", "got cpu"),
        ({"nodes": None, "nodes_elsewhere": None}, "pass", "read back"),
    ],
)
def test_placement(store, changes, verdict, words):
    """A fallback, another device or more threads than are paid for fail; a processor that reports no nodes is read back."""
    values = {"device": "cpu", "providers": ("CPUExecutionProvider",), "precision": "int8", "threads": 1, "nodes": 40, "nodes_elsewhere": 0}
    candidate = evidence(store, INT8, 0.6, placement=Placement(**(values | changes)))
    check = gate(judged(store, evidence(store, BASELINE, 2.1), candidate), "placement")
    assert check.verdict == verdict
    assert words in check.detail


def changed_timing(store: Store, **changes) -> dict:
    timing = a_timing(store, 0.6, a_policy().valid)
    return {"timing": timing.model_copy(update=changes)}


def test_what_makes_numbers_worthless(store):
    """Another harness, too few repeats, a repeat on another device, tuned on the judged samples, a lost engine: none is proposed."""
    base, good = evidence(store, BASELINE, 2.1), evidence(store, INT8, 0.6)
    odd = good.timing.repeats[0].model_copy(update={"warnings": ("ran on cpu in fp32 with 2 threads, the first repeat on cpu",)})
    crowd = good.timing.repeats[0].model_copy(update={"foreign_cores": 0.6})
    shaky = good.timing.repeats[0].model_copy(update={"warnings": ("unstable: the last third was 84% slower than the first",)})
    cases = {
        "other work on its cores in 5 of 5": changed_timing(store, repeats=(crowd,) * 5),
        "unstable in 3 of 5": changed_timing(store, repeats=(*(shaky,) * 3, *good.timing.repeats[:2])),
        "another measuring code": changed_timing(store, harness="b" * 64),
        "another boundary": changed_timing(store, boundary="device_compute"),
        "4 repeats, the policy asks for 5": changed_timing(store, repeats=good.timing.repeats[:4]),
        "ran on cpu in fp32": changed_timing(store, repeats=(odd, *good.timing.repeats[1:])),
        "tuned on": {"evaluation": a_score(store, good.engine, 3900, calibration="e" * 64)},
        "calibrated it is not recorded": {"evaluation": a_score(store, good.engine, 3900, calibration=None)},
        "another engine": {"evaluation": a_score(store, base.engine, 3900)},
        "no longer in the store": {"engine": good.engine.model_copy(update={"sha256": "f" * 64})},
        "two machines": {"cell": a_cell(recipe="int8-static-conv", target=TWO_CORES), "host": base.host.model_copy(update={"cpu": "Xeon"})},
    }
    for words, changes in cases.items():
        candidate = good.model_copy(update=changes)
        decision = judged(store, base, candidate)
        assert decision.verdict != "propose", words
        assert words in gate(decision, "validity").detail


def test_a_passing_disturbance_does_not_spoil_a_measurement(store):
    """A minority of disturbed repeats, and a little foreign load, are noted and no more."""
    good = evidence(store, INT8, 0.6)
    calm = good.timing.repeats[0].model_copy(update={"foreign_cores": 0.2})
    loud = good.timing.repeats[0].model_copy(update={"foreign_cores": 0.9, "warnings": ("unstable: for a while",)})
    candidate = good.model_copy(update=changed_timing(store, repeats=(loud, loud, calm, calm, calm)))
    assert judged(store, evidence(store, BASELINE, 2.1), candidate).verdict == "propose"


def test_a_disturbed_baseline_is_no_yardstick(store):
    """A saving against a baseline that was slowed down by other work is not proposed."""
    slowed = evidence(store, BASELINE, 2.1)
    crowd = slowed.timing.repeats[0].model_copy(update={"foreign_cores": 1.4})
    slowed = slowed.model_copy(update={"timing": slowed.timing.model_copy(update={"repeats": (crowd,) * 5})})
    decision = judged(store, slowed, evidence(store, INT8, 0.6))
    assert decision.verdict == "inconclusive"
    assert "baseline: other work on its cores in 5 of 5 repeats" in gate(decision, "validity").detail


def test_the_same_engine_is_as_accurate_as_itself(store):
    """One file on a smaller instance: no pair differs and none can, so a small set does not stand in the way."""
    base, moved = evidence(store, BASELINE, 2.1), evidence(store, a_cell(target=ONE_CORE), 2.1)
    few = {"count": 50, "samples": a_score(store, base.engine, 48, 50).samples}
    base = base.model_copy(update={"evaluation": a_score(store, base.engine, 48, **few)})
    other = moved.model_copy(update={"evaluation": a_score(store, moved.engine, 48, **few)})
    assert gate(judged(store, base, other), "accuracy").verdict == "unknown"
    same = moved.model_copy(update={"engine": base.engine, "evaluation": base.evaluation})
    assert gate(judged(store, base, same), "accuracy").verdict == "pass"
    assert "the same engine" in gate(judged(store, base, same), "accuracy").detail


def test_a_screen_is_never_proposed(store):
    """However good, a screen result is held: it only ranks."""
    decision = judged(store, evidence(store, BASELINE, 2.1), evidence(store, INT8, 0.1, mode="screen"))
    assert (decision.verdict, decision.recommended) == ("hold", None)
    assert decision.findings[0].reason.startswith("screen only")


def test_a_screened_baseline_decides_nothing(store):
    """A candidate cannot be measured against a baseline that was only screened."""
    decision = judged(store, evidence(store, BASELINE, 2.1, mode="screen"), evidence(store, INT8, 0.6))
    assert decision.verdict == "inconclusive"
    assert "baseline: screen only" in gate(decision, "validity").detail


def test_an_unmeasured_baseline_is_inconclusive(store):
    """Nothing is compared with nothing; the reason is the baseline's."""
    request, candidate = a_request(), evidence(store, INT8, 0.6)
    lost = Unmeasured(cell=BASELINE, stage="measure", reason="the process hung for 120 s")
    decision = decide(request, [lost, candidate], costs_of(request, [candidate]), {}, store)
    assert decision.verdict == "inconclusive"
    assert "the baseline ort/fp32@cpu-2core was not measured: the process hung" in decision.summary
    assert decide(request, [], [], {}, store).verdict == "inconclusive"


def test_the_shortlist_takes_the_fastest_accurate_cell(store):
    """The fastest is refused for its accuracy, the next is chosen, the slow one is told what it was slower than."""
    reference = evidence(store, BASELINE, 2.1).development
    wrong = evidence(store, a_cell(recipe="int8-dynamic", target=ONE_CORE), 0.2, right=400, mode="screen")
    fast, slow = evidence(store, INT8, 0.5, mode="screen"), evidence(store, a_cell(target=ONE_CORE), 2.1, mode="screen")
    fallen = evidence(
        store,
        a_cell(recipe="int8-static", target=ONE_CORE),
        0.1,
        mode="screen",
        placement=fast.placement.model_copy(update={"nodes_elsewhere": 4, "elsewhere": ("GridSample",)}),
    )
    chosen, reasons = shortlist([slow, wrong, fallen, fast], reference, a_policy(), store)
    assert chosen == [INT8.digest]
    assert reasons[slow.cell.digest] == "accurate, but slower than ort/int8-static-conv@cpu-1core: 475/s against 1,996/s"
    assert reasons[wrong.cell.digest].startswith("refused on accuracy: top1 0.1 against 0.975 (-87.5 points, 95% bounds")
    assert "GridSample" in reasons[fallen.cell.digest]


def test_a_dead_heat_goes_by_name(store):
    """Two cells within a screen's noise: the same one is chosen whatever their order and whoever was a hair faster."""
    one, other = a_cell(recipe="int8-static", target=ONE_CORE), INT8
    for first, second in ((0.5, 0.505), (0.505, 0.5)):
        outcomes = [evidence(store, one, first, mode="screen"), evidence(store, other, second, mode="screen")]
        assert shortlist(outcomes, None, a_policy(), store)[0] == shortlist(outcomes[::-1], None, a_policy(), store)[0] == [other.digest]


def test_a_doubtful_cell_goes_behind_a_sound_one(store):
    """A point estimate beyond the margin is not yet a refusal, but it does not take a sound cell's place."""
    reference = evidence(store, BASELINE, 2.1).development
    doubtful = evidence(store, INT8, 0.3, right=3900 - 48, mode="screen")
    sound = evidence(store, a_cell(recipe="int8-static", target=ONE_CORE), 0.6, mode="screen")
    assert shortlist([doubtful, sound], reference, a_policy(), store)[0] == [sound.cell.digest]
    assert shortlist([doubtful], reference, a_policy(), store)[0] == [doubtful.cell.digest]


@pytest.mark.parametrize("right", [0, 2])
def test_a_baseline_that_does_not_work_proves_nothing(store, right):
    """No worse than a model that is always wrong, or nearly: unknown, even for the same engine byte for byte."""
    request = a_request()
    outcomes = [evidence(store, BASELINE, 2.1, right=right), evidence(store, INT8, 0.6, right=right)]
    decision = decide(request, outcomes, costs_of(request, outcomes), {}, store)
    assert decision.verdict == "inconclusive"
    assert "the baseline itself does not work on this data: check labels and preprocessing" in decision.missing[0]


def test_a_cost_of_nothing_decides_nothing(store):
    """A record may be edited to hold zeros: unknown, not a division by zero."""
    request = a_request()
    outcomes = [evidence(store, BASELINE, 2.1), evidence(store, INT8, 0.6)]
    free = [
        one.model_copy(
            update={
                "parts": tuple(part.model_copy(update=dict.fromkeys(("usd_per_million", "low", "high"), Decimal(0))) for part in one.parts)
            }
        )
        for one in costs_of(request, outcomes)
    ]
    (finding,) = decide(request, outcomes, free, {}, store).findings
    assert (finding.verdict, finding.reason) == ("inconclusive", "cost: a cost of nothing cannot be compared")


def test_another_batch_decides_nothing(store):
    """Inputs are made for batch 1: at a stated batch of 8 the cost would look eight times too low."""
    request = a_request()
    timing = a_timing(store, 0.6, request.policy.valid.model_copy(update={"batch": 8}))
    outcomes = [evidence(store, BASELINE, 2.1), evidence(store, INT8, 0.6, timing=timing)]
    (finding,) = decide(request, outcomes, costs_of(request, outcomes), {}, store).findings
    assert finding.verdict == "hold"
    assert "only batch 1 is fed in this version" in finding.reason
