"""A home of its own for every test, and deployments in which a migration takes seconds."""

import shutil
from pathlib import Path

import pytest

DEPLOYMENTS = Path(__file__).resolve().parent.parent / "deployments"
QUICK = """
[quick]
title = "for tests: every gate, short measurements"
margin = { value = 0.05, unit = "points" }
finalists = 1
[quick.screen]
mode = "screen"
min_samples = 64
min_duration_s = 0.05
warmup_ms = 20
repeats = 1
[quick.valid]
mode = "valid"
min_duration_s = 0.1
warmup_ms = 20
repeats = 5
"""


@pytest.fixture
def workplace(tmp_path, monkeypatch):
    """A home, the digits model under the name digits-cnn, and the policy 'quick'. What a subprocess inherits, too."""
    deployments = tmp_path / "deployments"
    shutil.copytree(DEPLOYMENTS, deployments)
    (deployments / "policies.toml").write_text((DEPLOYMENTS / "policies.toml").read_text() + QUICK)
    models = tmp_path / "models.toml"
    models.write_text('[digits-cnn]\ntorch = "tests.builders:tiny_entry"\n')
    monkeypatch.setenv("CROSSGRADE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("CROSSGRADE_DEPLOYMENTS", str(deployments))
    monkeypatch.setenv("CROSSGRADE_MODELS", str(models))
    monkeypatch.setenv("CROSSGRADE_LEASES", str(tmp_path / "leases"))
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "prefect"))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setattr("tasks.catalog.DEPLOYMENTS", deployments)
    return tmp_path
