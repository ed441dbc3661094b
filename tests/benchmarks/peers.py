"""Our latency against the vendor's own tool: one IR file, one core, FP32, one stream, in turns within one run.

OpenVINO's benchmark_app times inside the runtime; ours adds the Python call and the copy of the outputs, which a service pays too.
"""

import os
import re
import subprocess
import sys
import tempfile
from math import log
from pathlib import Path

import numpy as np

from tasks.backends.openvino_rt import pack
from tasks.child import pick
from tasks.facts import Artifact, Cell, Recipe, Target, Workload
from tasks.host import lease
from tasks.measure import Job, Measured, measure, store_feeds
from tasks.stats import geometric_mean
from tasks.store import Store
from tests.benchmarks.figure import Figure

GOAL = "within 1%, or within what A/A shows"
MODEL = "minilm-l6"  # milliseconds a call, and outputs so small that copying them out is nothing
TOO_NOISY = 0.1  # a machine that tells nothing below that apart cannot answer
CYCLES = 8  # of ABBA
SECONDS = 1
TOKENS = 64  # some milliseconds a call: the Python call around it is well below a hundredth
CONFIG = '{"CPU": {"ENABLE_CPU_PINNING": false, "INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1, "INFERENCE_PRECISION_HINT": "f32"}}'
HERE = Target(
    name="here",
    title="one core of this machine",
    vendor="any",
    arch="any",
    memory_gib=4,
    provider="none",
    instance_type="none",
    region="none",
    work_pool="none",
)


def p50_ratio() -> Figure:
    """Median latency of ours over benchmark_app's, as a geometric mean over ABBA cycles."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, pick(1) or before)  # both tools inherit this core
    try:
        with lease("cpu"), tempfile.TemporaryDirectory() as folder:
            ours, theirs = _in_turns(Path(folder))
    finally:
        os.sched_setaffinity(0, before)
    ratio = geometric_mean([((a * d) / (b * c)) ** 0.5 for (a, d), (b, c) in zip(ours, theirs, strict=True)])
    same = _noise([log(first / last) for pairs in (ours, theirs) for first, last in pairs])
    met = None if same > TOO_NOISY else abs(ratio.value - 1) <= max(0.01, same)
    detail = (
        f"{np.median(ours):.3f} ms against {np.median(theirs):.3f} ms ({MODEL}, {TOKENS} tokens, one core, FP32), {CYCLES} ABBA cycles of "
        f"{SECONDS} s; by A/A, {same:.1%} is noise{', too much to tell: quieten the machine' if met is None else ''}"
    )
    return Figure("p50_ratio_benchmark_app", "ratio", GOAL, ratio.value, ratio.low, ratio.high, met, detail)


def _noise(logs: list[float]) -> float:
    """95% half-width that the mean over CYCLES has when both tools are one: a log A/A ratio varies twice as much as a cycle's does."""
    return float(1.96 * np.sqrt(np.mean(np.square(logs)) / (2 * CYCLES)))


def _in_turns(folder: Path) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
    """CYCLES of ours, theirs, theirs, ours: medians in ms, two of each in a cycle."""
    store, ir = Store(folder / "home"), folder / "model.xml"
    job = _job(store, folder, ir)
    ours, theirs = [], []
    for _ in range(CYCLES):
        a, b, c, d = _ours(job, store), _theirs(ir), _theirs(ir), _ours(job, store)
        ours.append((a, d))
        theirs.append((b, c))
    return ours, theirs


def _job(store: Store, folder: Path, ir: Path) -> Job:
    """A sentence encoder at one fixed length, as one IR for both. Exported once, into the usual store."""
    import openvino as ov

    from model_zoo import entry
    from tasks.export import export

    usual = Store()
    model = ov.Core().read_model(usual.path(export(entry(MODEL), "onnx", usual).sha256))
    model.reshape({port: [1, TOKENS] for port in model.inputs})
    ov.save_model(model, ir, compress_to_fp16=False)
    packed = folder / "engine"
    pack(model, packed)
    engine = Artifact(kind="engine", format="openvino", sha256=store.put_file(packed), size_bytes=packed.stat().st_size)
    feed = {port.get_any_name(): np.ones((1, TOKENS), np.int64) for port in model.inputs}
    workload = Workload(min_samples=11, min_duration_s=SECONDS, repeats=1)
    cell = Cell(model=MODEL, recipe=Recipe(name="fp32"), backend="openvino", target=HERE)
    return Job(engine=engine, cell=cell, workload=workload, feeds=store_feeds([feed], store))


def _ours(job: Job, store: Store) -> float:
    [outcome] = measure([job], store)
    if not isinstance(outcome, Measured):
        raise RuntimeError(outcome.reason)
    return float(np.median(store.array(outcome.timing.repeats[0].samples))) / 1e6


def _theirs(ir: Path) -> float:
    """benchmark_app's median in ms; it prints microseconds below a millisecond."""
    config = ir.with_name("config.json")
    config.write_text(CONFIG)
    code = "import sys; from openvino.tools.benchmark.main import main; sys.exit(main())"
    arguments = [
        "-m",
        str(ir),
        "-d",
        "CPU",
        "-hint",
        "none",
        "-api",
        "sync",
        "-nireq",
        "1",
        "-t",
        str(SECONDS),
        "-load_config",
        str(config),
    ]
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=120, check=False)
    found = re.search(r"Median:\s+([\d.]+) (ms|us)", done.stdout)
    if not found:
        raise RuntimeError(f"benchmark_app gave no median: {done.stdout[-500:]}{done.stderr[-500:]}")
    return float(found[1]) / (1 if found[2] == "ms" else 1000)
