"""What orchestration costs, and what the cache saves. Both run the product as a user does, in a home of their own."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import ProxyHandler, Request, build_opener

from tests.benchmarks.figure import Figure

ROOT = Path(__file__).resolve().parents[2]
PORTS = ("14310", "15310")
READY_S = 300
RUN_S = 900


def second_run_ratio() -> Figure:
    """Wall time of the demo's second run over its first: the first trains, exports, quantizes, builds and scores; both take timings."""
    with tempfile.TemporaryDirectory() as home:
        first, second = (_seconds("migrate", "--request", "deployments/requests/demo.toml", home=home) for _ in range(2))
    return Figure(
        name="second_run_ratio",
        unit="second / first",
        goal="0.5 or less",
        value=second / first,
        met=second / first <= 0.5,
        detail=f"first {first:.0f} s, second {second:.0f} s, one pair",
    )


def orchestration_ratio() -> Figure:
    """Wall time of a migration through Prefect and its workers over the same without servers, everything built before; ABBA."""
    words = ("migrate", "--request", "deployments/requests/demo.toml")
    with tempfile.TemporaryDirectory() as home:
        _seconds(*words, home=home)
        with _up(home) as prefect:
            first = _through_prefect(prefect)
            direct = [_seconds(*words, home=home) for _ in range(2)]
            served = [first, _through_prefect(prefect)]
    ratios = sorted((served[0] / direct[0], served[1] / direct[1]))
    value = sum(served) / sum(direct)
    detail = (
        f"through Prefect {served[0]:.0f} and {served[1]:.0f} s, directly {direct[0]:.0f} and {direct[1]:.0f} s; interval: the two pairs"
    )
    return Figure("orchestration_ratio", "served / direct", "1.05 or less", value, *ratios, value <= 1.05, detail)


def _seconds(*words: str, home: str) -> float:
    began = time.perf_counter()
    env = {**os.environ, "CROSSGRADE_HOME": home}
    subprocess.run([sys.executable, "-m", "flows", *words], cwd=ROOT, env=env, check=True, capture_output=True, timeout=RUN_S)
    return time.perf_counter() - began


@contextmanager
def _up(home: str) -> Iterator[str]:
    """`crossgrade up` on ports of its own; gives Prefect's API address."""
    command = [sys.executable, "-m", "flows", "up", "--prefect-port", PORTS[0], "--mlflow-port", PORTS[1]]
    process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, "CROSSGRADE_HOME": home}, stdout=subprocess.DEVNULL)
    try:
        until = time.perf_counter() + READY_S
        while not (Path(home) / "servers.json").exists():
            if process.poll() is not None or time.perf_counter() > until:
                raise RuntimeError("crossgrade up did not start")
            time.sleep(0.5)
        yield f"http://127.0.0.1:{PORTS[0]}/api"
    finally:
        process.terminate()
        process.wait(60)


def _through_prefect(api: str) -> float:
    """Run the demo's request as the form would; from the click to the end, as Prefect's own clock has it."""
    demo = {
        "model": "silero-vad",
        "targets": ["cpu-2core", "cpu-1core", "sim-t4", "sim-l4"],
        "recipes": _demo_recipes(),
        "slo": {"latency_ms": 20, "percentile": 99},
    }
    deployment = _ask(f"{api}/deployments/name/migrate/migrate")
    run = _ask(f"{api}/deployments/{deployment['id']}/create_flow_run", {"parameters": demo, "state": {"type": "SCHEDULED"}})
    began = time.perf_counter()
    while time.perf_counter() < began + RUN_S:
        state = _ask(f"{api}/flow_runs/{run['id']}")["state"]
        if state["type"] in ("COMPLETED", "FAILED", "CRASHED", "CANCELLED"):
            if state["type"] != "COMPLETED":
                raise RuntimeError(f"the flow run ended as {state['name']}: {state['message']}")
            return time.perf_counter() - began
        time.sleep(0.5)
    raise RuntimeError("the flow run did not end")


def _demo_recipes() -> list[str]:
    import tomllib

    return tomllib.loads((ROOT / "deployments/requests/demo.toml").read_text())["recipes"]


def _ask(address: str, body: dict | None = None) -> dict:
    data = None if body is None else json.dumps(body).encode()
    request = Request(address, data=data, headers={"Content-Type": "application/json"})
    with build_opener(ProxyHandler({})).open(request, timeout=30) as answer:
        return json.load(answer)
