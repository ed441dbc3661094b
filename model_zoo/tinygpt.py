"""A small language model trained once per store on this interpreter's own documentation, scored by held-out perplexity."""

import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from model_zoo.data import Arrays, batches, cached_arrays, module_source, sample_hash, trained_weights
from model_zoo.facts import Split, Splits, Tensors
from tasks.facts import Metric, ModelSpec, TensorSpec
from tasks.optional import version_of
from tasks.store import Store

if TYPE_CHECKING:
    import torch

TOKENS, BATCH = 128, 8
WINDOWS = {"calibration": 32, "development": 64, "evaluation": 96}  # at most; the held-out text decides
NET = Path(__file__).with_name("tinygpt_net.py")

SPEC = ModelSpec(
    id="tinygpt",
    title="Tiny GPT",
    task="language modelling",
    request="next-token logits of 128 tokens",
    source=f"trained here for 400 steps, seeded, on the documentation of Python {platform.python_version()}",
    license="none: made on this machine",
    data_source="the Python language reference and standard-library docstrings of the running interpreter",
    data_license="PSF-2.0",
    files={NET.name: module_source(NET)},
    inputs=(TensorSpec(name="ids", dtype="int64", shape=("batch", TOKENS)),),
    outputs=("logits",),
    metric=Metric(name="perplexity", unit="window", higher_is_better=False, transform="exp"),
    parameters=2_188_992,
)


class TinyGptEntry:
    """`ids` (batch, 128) -> `logits` (batch, 128, 1024) of the next token."""

    spec = SPEC

    def onnx(self, store: Store) -> Path | None:  # noqa: ARG002
        """None: torch is the source."""
        return None

    def torch_module(self, store: Store) -> "torch.nn.Module":
        """The trained model in eval mode; trains about 90 s the first time."""
        from model_zoo.tinygpt_net import TinyGpt, train

        tokens = _tokens(store)["training"]
        key = {"model": SPEC.id, "files": SPEC.files, "data": sample_hash(tokens)}
        net = TinyGpt()
        net.load_state_dict(trained_weights(store, key, lambda: train(tokens)))
        return net.eval()

    def dynamic_axes(self) -> dict[str, dict[int, str]]:
        """The number of windows."""
        return {"ids": {0: "batch"}, "logits": {0: "batch"}}

    def splits(self, store: Store) -> Splits:
        """Windows that do not overlap; development and evaluation come from other topics than anything trained or calibrated on."""
        tokens = _tokens(store)
        return Splits(
            calibration=_split(_windows(tokens["training"], WINDOWS["calibration"]), size=1),
            development=_split(_windows(tokens["development"], WINDOWS["development"]), size=BATCH),
            evaluation=_split(_windows(tokens["evaluation"], WINDOWS["evaluation"]), size=BATCH),
        )

    def requests(self, store: Store, batch: int, count: int) -> list[Tensors]:
        """Windows of the training text."""
        windows = _windows(_tokens(store)["training"], WINDOWS["calibration"])
        return [{"ids": windows[np.arange(start, start + batch) % len(windows)]} for start in range(0, batch * count, batch)]

    def score(self, outputs: Sequence[Tensors], labels: Mapping[str, np.ndarray]) -> np.ndarray:
        """Perplexity: (summed negative log likelihood, predicted tokens) per window; its exponential is taken over the whole split."""
        from scipy.special import logsumexp

        losses = []
        for output, ids in zip(outputs, batches(labels["ids"], BATCH), strict=True):
            logits = output["logits"][:, :-1].astype(np.float64)
            said = np.take_along_axis(logits, ids[:, 1:, None], 2)[..., 0]
            losses.append((logsumexp(logits, 2) - said).sum(1))
        total = np.concatenate(losses)
        return np.stack([total, np.full_like(total, TOKENS - 1)], 1)


ENTRY = TinyGptEntry()


def _split(windows: np.ndarray, size: int) -> Split:
    return Split(
        feeds=[{"ids": part} for part in batches(windows, size)],
        labels={"ids": windows},
        hashes=tuple(sample_hash(window) for window in windows),
    )


def _windows(tokens: np.ndarray, count: int) -> np.ndarray:
    """Up to `count` windows of 128, spread evenly over the text."""
    whole = tokens[: len(tokens) // TOKENS * TOKENS].reshape(-1, TOKENS).astype(np.int64)
    return whole[np.linspace(0, len(whole) - 1, min(count, len(whole))).astype(int)]


def _tokens(store: Store) -> Arrays:
    """The corpus; it changes with the interpreter, so its version is the key."""

    def make() -> Arrays:
        from model_zoo.tinygpt_net import corpus

        return corpus()

    key = {"model": SPEC.id, "python": platform.python_version(), "tokenizers": version_of("tokenizers"), "code": SPEC.files}
    return cached_arrays(store, key, make)
