"""Small real things for tests: a convolutional net that learns scikit-learn's digits in a second, and cells to run it in."""

import hashlib
import io
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from model_zoo.facts import Split, Splits, Tensors
from tasks.backends.torch_eager import threads
from tasks.facts import Artifact, Cell, Margin, Metric, ModelSpec, Policy, Recipe, Simulation, Target, TensorSpec
from tasks.store import Store

if TYPE_CHECKING:
    import torch

DEPLOYMENTS = Path(__file__).resolve().parent.parent / "deployments"
TOP1 = Metric(name="top1", unit="image", proportion=True)


class TinyEntry:
    """A zoo entry with real labels: 8x8 handwritten digits, 10,000 parameters, about 98% top-1."""

    spec = ModelSpec(
        id="digits-cnn",
        title="Digits CNN",
        task="image classification",
        request="1 image",
        source="trained on scikit-learn's digits",
        license="Apache-2.0",
        data_source="scikit-learn digits",
        data_license="BSD-3-Clause",
        inputs=(TensorSpec(name="x", dtype="float32", shape=("batch", 1, 8, 8)),),
        outputs=("logits",),
        metric=TOP1,
    )

    def onnx(self, store: Store) -> Path | None:
        """No ONNX: the torch module is the source."""
        return None

    def torch_module(self, store: Store) -> "torch.nn.Module":
        """The trained net; weights come from the store, and are trained once where it has none."""
        import torch

        weights = store.cached("weights", {"entry": self.spec.digest}, Artifact, lambda: _weights(store))
        with np.load(store.path(weights.sha256), allow_pickle=False) as arrays:
            state = {name: torch.from_numpy(arrays[name]) for name in arrays.files}
        net = _net()
        net.load_state_dict(state)
        return net.eval()

    def dynamic_axes(self) -> dict[str, dict[int, str]]:
        """The batch is free."""
        return {"x": {0: "batch"}, "logits": {0: "batch"}}

    def splits(self, store: Store) -> Splits:
        """200 images to calibrate on (one per feed), 300 to choose on, 300 to judge on (50 per feed)."""
        return Splits(calibration=_split(0, 200, 1), development=_split(200, 500, 50), evaluation=_split(500, 800, 50))

    def requests(self, store: Store, batch: int, count: int) -> list[Tensors]:
        """Batches of calibration images, each feed another."""
        images, _ = _digits()
        return [{"x": images[np.arange(i, i + batch) % 200]} for i in range(count)]

    def score(self, outputs: Sequence[Tensors], labels: Mapping[str, np.ndarray]) -> np.ndarray:
        """Top-1: (right, 1) per image."""
        predicted = np.concatenate([np.asarray(output["logits"]) for output in outputs]).argmax(axis=1)
        right = (predicted == labels["digit"]).astype(np.float64)
        return np.stack([right, np.ones_like(right)], axis=1)


def tiny_entry() -> TinyEntry:
    """The digits model as a zoo entry."""
    return TinyEntry()


def a_recipe(name: str = "fp32", **changes: Any) -> Recipe:
    """A recipe of deployments/recipes.toml, with changes."""
    table = tomllib.loads((DEPLOYMENTS / "recipes.toml").read_text())[name]
    return Recipe(**({"name": name, **table} | changes))


def a_target(*, simulated: bool = False, **changes: Any) -> Target:
    """One core of this machine, or a simulated card that is faster."""
    values: dict[str, Any] = {
        "name": "cpu-1core",
        "title": "1 core",
        "vendor": "amd",
        "arch": "x86_64",
        "threads": 1,
        "memory_gib": 2,
        "provider": "aws",
        "instance_type": "c7a.medium",
        "region": "us-east-1",
        "work_pool": "cpu-1core",
    }
    if simulated:
        values |= {"name": "sim-l4", "title": "simulated L4", "vendor": "nvidia", "arch": "sm_89", "device": "simulated:l4"}
        values |= {"instance_type": "g6.xlarge", "work_pool": "simulated", "simulation": a_simulation()}
    return Target(**(values | changes))


def a_simulation(**changes: Any) -> Simulation:
    """A card that takes 420 us in FP32 and 150 us in INT8."""
    values: dict[str, Any] = {"step_us": {"fp32": 420, "fp16": 210, "int8": 150}, "noise": 0.02, "output_error": {"int8": 0.002}}
    return Simulation(**(values | changes))


def a_cell(backend: str = "ort", recipe: str | Recipe = "fp32", target: Target | None = None, model: str = "digits-cnn") -> Cell:
    """One square of the matrix; the simulated backend gets a simulated target."""
    recipe = a_recipe(recipe) if isinstance(recipe, str) else recipe
    return Cell(model=model, recipe=recipe, backend=backend, target=target or a_target(simulated=backend == "simulated"))


def a_policy(**changes: Any) -> Policy:
    """One point of accuracy may be lost; 10% must be saved."""
    return Policy(**({"name": "test", "title": "for tests", "margin": Margin(value=0.01, unit="points")} | changes))


@cache
def _digits() -> tuple[np.ndarray, np.ndarray]:
    from sklearn.datasets import load_digits

    images, digits = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(digits))
    return (images[order].reshape(-1, 1, 8, 8) / 16).astype(np.float32), digits[order].astype(np.int64)


def _split(start: int, stop: int, batch: int) -> Split:
    images, digits = _digits()
    return Split(
        feeds=[{"x": images[i : i + batch]} for i in range(start, stop, batch)],
        labels={"digit": digits[start:stop]},
        hashes=tuple(hashlib.sha256(image.tobytes()).hexdigest() for image in images[start:stop]),
    )


def _net() -> "torch.nn.Module":
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
        nn.Flatten(), nn.Linear(512, 10),
    )  # fmt: skip


@cache
def _trained() -> bytes:
    """An .npz of weights after eight passes over 997 images; once per process, whatever the number of stores."""
    import torch

    images, digits = (torch.from_numpy(array[800:]) for array in _digits())
    with torch.random.fork_rng(), threads(1):  # a net this small only loses by more, most of all when tests run side by side
        torch.manual_seed(0)
        net = _net()
        optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
        for _ in range(8):
            for batch in torch.randperm(len(digits)).split(64):
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(net(images[batch]), digits[batch]).backward()
                optimizer.step()
    buffer = io.BytesIO()
    np.savez(buffer, **{name: value.numpy() for name, value in net.state_dict().items()})
    return buffer.getvalue()


def _weights(store: Store) -> Artifact:
    data = _trained()
    return Artifact(kind="weights", format="npz", sha256=store.put(data), size_bytes=len(data))
