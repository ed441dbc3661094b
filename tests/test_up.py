"""`crossgrade up`: what it refuses, and a real one that is hurt, stopped and started again."""

import json
import os
import signal
import socket
import subprocess
import sys

import psutil
import pytest

from flows import workers
from flows.servers import check_host, check_port
from flows.services import addresses, get, services
from tasks.catalog import targets
from tasks.errors import BadRequest
from tests.running import ROOT, Up


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def up(home):
    started = Up(home)
    yield started
    if started.process.poll() is None:
        started.stop()


@pytest.mark.server
@pytest.mark.slow
def test_it_heals_and_stops_leaving_nothing(up, home):
    """Both answer, all flows are deployed, a second one is refused, killed children come back, Ctrl-C ends every process."""
    assert addresses(home).prefect == f"http://127.0.0.1:{up.ports[0]}"
    deployed = {each["name"] for each in up.api("/deployments/filter", {})}
    assert deployed == {"migrate", "approve", "nightly", *targets()}

    env = {**os.environ, "CROSSGRADE_HOME": str(home), "COLUMNS": "200"}
    second = subprocess.run([sys.executable, "-m", "flows", "up"], cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert second.returncode == 2
    assert f"already up on {home}: Prefect http://127.0.0.1:{up.ports[0]}" in second.stderr

    up.kill("-m", "flows.workers")
    up.kill("-m", "mlflow", "server")
    up.wait_for("workers was killed by SIGKILL: starting it again (1 of 5)")
    up.wait_for("MLflow was killed by SIGKILL: starting it again (1 of 5)")
    up.wait_until(lambda: get(f"http://127.0.0.1:{up.ports[1]}/health"))

    family = up.family()
    up.process.send_signal(signal.SIGINT)
    assert up.process.wait(20) == 0
    assert not [process for process in family if process.is_running()]
    assert addresses(home) is None


@pytest.mark.server
@pytest.mark.slow
def test_a_run_that_was_interrupted_goes_on_at_the_next_start(up, home):
    """kill -9 of everything while a run is under way: no orphans, and the next start runs it again."""
    approve = up.api("/deployments/name/approve/approve")["id"]
    run = up.api(f"/deployments/{approve}/create_flow_run", {"state": {"type": "RUNNING"}, "parameters": {"record": "latest"}})["id"]
    family = up.family()
    up.process.kill()
    up.process.wait()
    up.wait_until(lambda: not [process for process in family if process.is_running()])
    assert addresses(home) is None

    again = Up(home)
    try:
        state = again.wait_until(lambda: (found := again.api(f"/flow_runs/{run}")["state"])["type"] == "FAILED" and found)
        assert "there are no records in" in state["message"]
    finally:
        assert again.stop() == 0


def test_a_taken_port_is_named_with_the_option():
    """And with a port to try."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(BadRequest, match=rf"port {port} .* in use. choose another with --mlflow-port {port + 1}"):
            check_port("127.0.0.1", port, "--mlflow-port")


@pytest.mark.parametrize("host", ["0.0.0.0", "10.0.0.7", "::", "8.8.8.8", "example.com", ""])
def test_only_loopback_is_served_without_passwords(host):
    """Whoever reaches the port may run flows and approve."""
    with pytest.raises(BadRequest, match="loopback|is not an IP address"):
        check_host(host)
    check_host("127.0.0.1")
    check_host("::1")


def test_a_file_left_by_a_killed_process_is_no_address(tmp_path):
    """Its pid is gone, or is another process by now."""
    assert addresses(tmp_path) is None
    left = {"pid": os.getpid(), "pid_started": 1.0, "prefect": "http://127.0.0.1:4200", "mlflow": "http://127.0.0.1:5000"}
    (tmp_path / "servers.json").write_text(json.dumps(left))
    assert addresses(tmp_path) is None
    (tmp_path / "servers.json").write_text(json.dumps(left | {"pid_started": psutil.Process().create_time()}))
    assert addresses(tmp_path).mlflow == "http://127.0.0.1:5000"


def test_every_target_has_a_sweep_on_its_pool(tmp_path):
    """prefect.yaml and targets.toml agree; a target without a deployment is named before anything waits for ever."""
    assert workers.undeployed() == []
    short = tmp_path / "prefect.yaml"
    short.write_text('deployments: [{name: cpu-2core, entrypoint: "flows.sweep:sweep", work_pool: {name: elsewhere}}]')
    assert workers.undeployed(short) == list(targets())


def test_no_child_calls_home(tmp_path):
    """Telemetry is off in every child's environment, by the words each of them reads."""
    where = addresses_of(tmp_path)
    for service in services(tmp_path, where, "127.0.0.1", 4200, 5000):
        assert service.env["DO_NOT_TRACK"] == service.env["MLFLOW_DISABLE_TELEMETRY"] == "true"
        assert service.env["PREFECT_SERVER_ANALYTICS_ENABLED"] == "false"


def addresses_of(home):
    (home / "servers.json").write_text(
        json.dumps({"pid": os.getpid(), "pid_started": psutil.Process().create_time(), "prefect": "http://p", "mlflow": "http://m"})
    )
    return addresses(home)
