"""The main path, whole: a real model through real children to a record; and what survives kill -9, Ctrl-C and a server that is away."""

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from flows.migrate import in_this_process, migration
from tasks import record as records
from tasks.catalog import Ask
from tasks.facts import Evidence, Unmeasured
from tasks.store import Store

SMALL = Ask(
    model="digits-cnn",
    baseline="ort/fp32@cpu-2core",
    targets=("cpu-1core", "sim-l4"),
    backends=("ort",),
    recipes=("fp32", "int8-static"),
    policy="quick",
)
WORDS = [
    *("migrate", "digits-cnn", "-t", "cpu-1core", "-t", "sim-l4", "-b", "ort", "-r", "fp32", "-r", "int8-static", "--policy", "quick"),
]


def crossgrade(*words: str, **env: str) -> subprocess.Popen:
    """The command line in a process of its own."""
    command = [sys.executable, "-m", "flows", *words]
    root = Path(__file__).resolve().parent.parent
    return subprocess.Popen(
        command, cwd=root, env={**os.environ, **env}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )


def run(*words: str, **env: str) -> tuple[int, str]:
    process = crossgrade(*words, **env)
    output = process.communicate(timeout=240)[0]
    return process.returncode, output


def timed_cells(output: str) -> set[str]:
    """Cells of which a repeat was timed, by the progress lines."""
    return {line.split("s  ", 1)[1].split(": ")[0] for line in output.splitlines() if ": repeat " in line}


def leftovers(home: Path) -> list[str]:
    """Half-written files, and processes that outlived their parent."""
    files = [str(path) for path in home.glob("**/.new-*")]
    return files + [
        " ".join(process.cmdline()) for process in psutil.process_iter(["cmdline"]) if str(home) in str(process.info["cmdline"])
    ]


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """One migration, shared by the tests that only look at it."""
    patch = pytest.MonkeyPatch()
    from tests.conftest import workplace

    tmp_path = tmp_path_factory.mktemp("migration")
    workplace.__wrapped__(tmp_path, patch)
    store = Store(tmp_path / "home")
    try:
        yield asyncio.run(migration(SMALL, store, in_this_process)), store
    finally:
        patch.undo()


def test_every_cell_ends_as_evidence_or_with_a_reason(done):
    """Nothing that was asked for is missing from the record, and the baseline is measured properly."""
    record, _ = done
    assert [outcome.cell for outcome in record.outcomes] == [record.request.baseline, *record.request.candidates]
    assert not [outcome.reason for outcome in record.outcomes if isinstance(outcome, Unmeasured)]
    assert record.outcomes[0].mode == "valid"
    assert len(record.decision.findings) == len(record.request.candidates)


def test_the_engine_that_was_timed_is_the_one_that_was_scored(done):
    """Accuracy belongs to the artefact: same sha256, and calibration is another set than evaluation."""
    record, store = done
    for outcome in record.outcomes:
        for score in filter(None, (outcome.development, outcome.evaluation)):
            assert score.engine == outcome.engine.sha256
            assert score.data != score.calibration
        assert store.has(outcome.engine.sha256)


def test_lineage_leads_from_the_engine_to_the_export(done):
    """Each artifact's parent is the next one."""
    record, _ = done
    quantized = next(out for out in record.outcomes if out.cell.recipe.name == "int8-static" and not out.cell.target.simulated)
    assert quantized.engine.parent == quantized.lineage[0].sha256
    assert quantized.lineage[0].parent == quantized.lineage[1].sha256
    assert quantized.lineage[1].kind == "exported"


def test_a_simulated_cell_is_never_proposed(done):
    """However fast and cheap it is."""
    record, _ = done
    simulated = {outcome.cell.name for outcome in record.outcomes if outcome.cell.target.simulated}
    assert simulated
    assert record.decision.recommended not in simulated
    assert all(finding.verdict != "propose" for finding in record.decision.findings if finding.cell in simulated)


def test_the_record_lies_beside_its_plots_and_reads_back(done):
    """The file is the truth."""
    record, store = done
    assert records.read(record.id, store) == record
    assert (records.folder(record.id, store) / "latency.png").read_bytes().startswith(b"\x89PNG")


def test_the_attempt_is_closed(done):
    """Nothing is left to resume."""
    _, store = done
    assert not list((store.root / "attempts").iterdir())


def test_a_second_run_takes_timings_again_and_builds_nothing(done):
    """Exports, builds and scores come from the cache; a measurement is an event."""
    first, store = done
    made = {path: path.stat().st_mtime_ns for path in store.root.glob("keys/*/*.json")}
    second = asyncio.run(migration(SMALL, store, in_this_process))
    assert {path: path.stat().st_mtime_ns for path in store.root.glob("keys/*/*.json")} == made
    assert second.id != first.id
    before, after = (record.outcomes[0] for record in (first, second))
    assert isinstance(before, Evidence)
    assert isinstance(after, Evidence)
    assert before.engine == after.engine
    assert before.timing.repeats[0].samples != after.timing.repeats[0].samples


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_kill_9_at_any_moment_and_the_same_command_goes_on(workplace, seed):
    """Cells that were finished are not timed again, nothing is half-written, no lease stays held, nobody lives on."""
    process = crossgrade(*WORDS)
    time.sleep(random.Random(seed).uniform(4, 22))
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    time.sleep(0.5)
    home = workplace / "home"
    assert not [name for name in leftovers(home) if "tasks.child" in name]
    finished = {path.name for path in home.glob("attempts/*/*.valid.json")} | {path.name for path in home.glob("attempts/*/*.screen.json")}
    kept = [Evidence.model_validate_json(path.read_bytes()) for path in home.glob("attempts/*/*.json") if path.name in finished]
    status, output = run(*WORDS)
    assert status == 0, output
    done_before = {evidence.cell.name for evidence in kept if evidence.mode == "valid"}
    assert not timed_cells(output) & done_before
    store = Store(home)
    record = records.read("latest", store)
    assert {evidence.digest for evidence in kept if evidence.mode == "valid"} <= {outcome.digest for outcome in record.outcomes}
    assert all(store.has(outcome.engine.sha256) for outcome in record.outcomes if isinstance(outcome, Evidence))


def test_ctrl_c_leaves_nothing_running_and_says_how_to_go_on(workplace):
    """Status 130, no child left, no traceback."""
    process = crossgrade(*WORDS)
    time.sleep(5)
    os.kill(process.pid, signal.SIGINT)
    output = process.communicate(timeout=20)[0]
    assert process.returncode == 130, output
    assert "the same command goes on" in output
    assert "Traceback" not in output
    time.sleep(0.5)
    assert not [name for name in leftovers(workplace / "home") if "tasks.child" in name]


def test_a_measuring_child_that_is_killed_costs_that_repeat_alone(workplace):
    """The cell is timed once more; the run ends with all its cells."""
    process = crossgrade(*WORDS)
    killed, until = False, time.monotonic() + 60
    while not killed and time.monotonic() < until:
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in psutil.Process(process.pid).children(recursive=True):
                if "tasks.measure.worker:once" in " ".join(child.cmdline()):
                    child.kill()
                    killed = True
        time.sleep(0.02)
    output = process.communicate(timeout=120)[0]
    assert killed
    assert process.returncode == 0, output
    outcomes = records.read("latest", Store(workplace / "home")).outcomes
    assert not [outcome.reason for outcome in outcomes if isinstance(outcome, Unmeasured)]


def test_mlflow_away_loses_nothing_and_push_brings_it(workplace):
    """The record is safe, the message says how to push it, and pushing twice makes one run."""
    status, output = run(*WORDS, MLFLOW_TRACKING_URI="http://127.0.0.1:9")
    assert status == 0, output
    assert "the record is safe" in output
    assert "crossgrade record push" in output
    for _ in range(2):
        assert run("record", "push", "latest")[0] == 0
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{workplace / 'home' / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("crossgrade/digits-cnn")
    runs = client.search_runs([experiment.experiment_id])
    assert sum("mlflow.parentRunId" not in each.data.tags for each in runs) == 1


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["migrate", "digits-cn"], "did you mean 'digits-cnn'"),
        (["migrate", "digits-cnn", "-t", "cpu-9core"], "no target 'cpu-9core'"),
        (["migrate", "digits-cnn", "--slo-ms", "0"], "slo.latency_ms"),
        (["migrate", "digits-cnn", "-b", "ort", "-r", "fp32", "-t", "cpu-2core"], "the only candidate is the baseline itself"),
        (["migrate"], "give a model or a request file"),
        (["show", "nothing-like-this"], "no record"),
        (["show", "../../etc/passwd"], "not a record's id"),
        (["approve", "latest", "--as", "Ada"], "there are no records"),
        (["nightly", "--model", "digits-cnn"], "no approved migration"),
    ],
)
def test_bad_input_is_one_clear_line(workplace, words, says):
    """What was wrong, where, what would be right; status 2, never a traceback."""
    status, output = run(*words)
    assert status == 2, output
    assert says in " ".join(output.split())
    assert "Traceback" not in output
