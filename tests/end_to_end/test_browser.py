"""What a person does in a browser: start a migration, read its decision, approve a proposal, find it in MLflow.

Screenshots go to $CROSSGRADE_SCREENSHOTS.
"""

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks import record as records
from tasks.decide import decide
from tasks.facts import Record
from tasks.store import Store
from tests.fabricated import a_record
from tests.running import Up

playwright = pytest.importorskip("playwright.sync_api", reason="pip install playwright (extra: dev)")
CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"
ARGUMENTS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
ARGUMENTS += ["--disable-component-update", "--disable-sync"]
ENDED = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")

pytestmark = [
    pytest.mark.server,
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(not Path(CHROMIUM).exists(), reason="Chromium is not installed: .ci/install-browser.sh"),
]


@pytest.fixture(scope="module")
def up(tmp_path_factory) -> Iterator[Up]:
    started = Up(tmp_path_factory.mktemp("home"))
    yield started
    assert started.stop() == 0


class Person:
    """Somebody with a browser."""

    def __init__(self, browser, up: Up) -> None:
        self.up, self.prefect, self.mlflow = up, f"http://127.0.0.1:{up.ports[0]}/v2", f"http://127.0.0.1:{up.ports[1]}"
        self.page = browser.new_page(viewport={"width": 1400, "height": 1000})
        self.page.set_default_timeout(30_000)
        self.outside: list[str] = []  # what any page asked from another host
        self.page.on("request", lambda request: self._note(request.url))
        self.album = Path(os.environ.get("CROSSGRADE_SCREENSHOTS") or tempfile.mkdtemp(prefix="crossgrade-"))
        self.album.mkdir(parents=True, exist_ok=True)

    def _note(self, url: str) -> None:
        if not url.startswith((self.prefect[:-3], self.mlflow, "data:", "blob:")):
            self.outside.append(url)

    def goes_to(self, url: str, sees: str) -> None:
        self.page.goto(url)
        self.page.get_by_text(sees).first.wait_for()

    def photographs(self, name: str) -> None:
        self.page.wait_for_timeout(1500)  # charts and images are drawn after the text
        self.page.screenshot(path=self.album / f"{name}.png", full_page=True)

    def field(self, label: str):
        """The control that a label belongs to."""
        found = self.page.locator("label").get_by_text(label, exact=True).first
        found.wait_for()
        return self.page.locator(f'[id="{found.get_attribute("for")}"]')

    def chooses(self, label: str, value: str) -> None:
        self.field(label).click()
        self.page.get_by_role("option", name=value, exact=True).click()

    def keeps_only(self, kept: set[str]) -> None:
        """Take the other chips off all multi-selects."""
        names = [chip.get_attribute("aria-label") for chip in self.page.get_by_label(re.compile("^Remove .* tag$")).all()]
        for name in names:
            if name.removeprefix("Remove ").removesuffix(" tag") not in kept:
                self.page.get_by_label(name, exact=True).first.click()

    def opens_form(self, deployment: str) -> None:
        found = self.up.api(f"/deployments/name/{deployment}")
        self.goes_to(f"{self.prefect}/deployments/deployment/{found['id']}/run", "Parameters")

    def submits(self) -> str:
        """Press Submit (again, where SQLite was busy); the new run's id."""
        for _ in range(3):
            with self.page.expect_response(re.compile(r"/create_flow_run$")) as answer:
                self.page.get_by_role("button", name="Submit").click()
            if answer.value.status == 201:
                return answer.value.json()["id"]
        raise AssertionError(answer.value.text())

    def waits_for(self, run: str, *states: str, seconds: float = 200) -> dict:
        """The run's state once it has one of these names, or has ended."""

        def reached() -> dict | None:
            state = (self.up.api(f"/flow_runs/{run}") or {}).get("state") or {}
            return state if state.get("name") in states or state.get("type") in ENDED else None

        return self.up.wait_until(reached, seconds)


@pytest.fixture(scope="module")
def person(up) -> Iterator[Person]:
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield Person(browser, up)
        browser.close()


def test_a_migration_is_started_from_the_form_and_its_decision_is_read(person):
    """The form offers the zoo, the run ends with a verdict, and the card is an artifact of the run."""
    person.opens_form("migrate/migrate")
    person.chooses("model", "silero-vad")
    person.keeps_only({"cpu-1core", "ort", "fp32"})
    person.chooses("policy (Optional)", "cost-first")
    person.photographs("1-form")
    run = person.submits()
    state = person.waits_for(run)
    assert state["name"] in {"Proposed", "Held", "Inconclusive"}, state  # which one depends on how quiet this machine is
    if state["name"] == "Proposed":  # then somebody is asked
        asked = {"flows": {"name": {"any_": ["approve"]}}, "flow_runs": {"state": {"name": {"any_": ["Suspended"]}}}}
        assert person.up.wait_until(lambda: person.up.api("/flow_runs/filter", asked))
    person.goes_to(f"{person.prefect}/runs/flow-run/{run}", "migrate silero-vad")
    person.photographs("2-run")
    person.page.get_by_role("tab", name="Artifacts").click()
    person.page.get_by_text("migration-silero-vad").first.click()
    person.page.get_by_role("heading", name="Silero VAD").wait_for()
    person.page.get_by_role("heading", name="Cost of a million inferences").wait_for()
    assert person.page.locator('img[src^="data:image/png"]').count() >= 2
    person.photographs("3-card")
    assert person.outside == []


@pytest.fixture(scope="module")
def proposal(up) -> Record:
    """A proposal whose evidence does not grow old."""
    store = Store(up.home)
    made = a_record(store)
    policy = made.request.policy.model_copy(update={"max_evidence_age_days": 36_500, "max_price_age_days": 36_500})
    request = made.request.model_copy(update={"policy": policy})
    decision = decide(request, made.outcomes, made.costs, {}, store)
    return records.write(made.model_copy(update={"request": request, "decision": decision}), store)


def test_a_proposal_is_approved_on_the_suspended_run(person, proposal):
    """The run waits for the form behind ⋮ > Resume; the answer is in the record."""
    person.opens_form("approve/approve")
    person.field("record (Optional)").fill(proposal.id)
    run = person.submits()
    assert person.waits_for(run, "Suspended")["name"] == "Suspended"
    person.goes_to(f"{person.prefect}/runs/flow-run/{run}", proposal.id)
    person.photographs("4-waiting")
    person.page.locator("button[aria-haspopup=menu]").first.click()
    person.page.get_by_role("menuitem", name="Resume").click()
    person.chooses("Your decision (Optional)", "approve")
    person.field("Your name").fill("Ana Silva")
    person.field("Comment (Optional)").fill("fits the budget")
    person.photographs("5-approval")
    person.page.get_by_role("dialog").get_by_role("button", name="Resume").click()
    assert person.waits_for(run)["name"] == "Approved"
    word = records.read(proposal.id, Store(person.up.home)).approvals[0]
    assert (word.answer, word.approver, word.comment, word.via) == ("approve", "Ana Silva", "fits the budget", "prefect")
    assert person.outside == []


def test_the_approved_migration_is_found_in_mlflow(person, proposal):
    """A parent run with its note, child runs, plots, and a registered version that carries the alias champion."""
    from mlflow import MlflowClient

    client = MlflowClient(person.mlflow)
    experiment = client.get_experiment_by_name(f"crossgrade/{proposal.model.id}")
    runs = client.search_runs([experiment.experiment_id])
    (parent,) = [run for run in runs if "mlflow.parentRunId" not in run.data.tags]
    assert len(runs) > 1
    classic = "workflowType=machine_learning"
    person.goes_to(f"{person.mlflow}/#/experiments/{experiment.experiment_id}/runs?{classic}", parent.info.run_name)
    person.photographs("6-experiment")
    person.goes_to(f"{person.mlflow}/#/experiments/{experiment.experiment_id}/runs/{parent.info.run_id}?{classic}", proposal.model.title)
    person.photographs("7-parent-run")
    person.goes_to(f"{person.mlflow}/#/experiments/{experiment.experiment_id}/runs/{parent.info.run_id}/artifacts?{classic}", "plots")
    person.page.get_by_text("plots", exact=True).first.click()
    person.page.get_by_text(re.compile(r"\.png$")).first.click()
    person.page.locator("img").first.wait_for()
    person.photographs("8-artifacts")
    model = client.get_registered_model(proposal.model.id)  # the first test may have registered another
    assert model.aliases["champion"]
    person.goes_to(f"{person.mlflow}/#/models/{model.name}?{classic}", "champion")
    person.photographs("9-registered-model")
    person.goes_to(f"{person.mlflow}/#/models/{model.name}/versions/{model.aliases['champion']}?{classic}", "champion")
    person.photographs("10-version")
    assert person.outside == []
