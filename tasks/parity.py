"""Whether an exported graph computes what the model computes, at more than the shape it was traced with.

A tracer may bake a dimension that was declared dynamic: torch 2.13's exporter bakes the sequence length of `nn.LSTM`
(https://github.com/pytorch/pytorch/issues/191855), and the graph is right at that length alone.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from model_zoo.facts import Entry, Tensors
from tasks.backends.base import words_of
from tasks.errors import BadModel, PipelineError
from tasks.store import Store

TOLERANCE = 1e-4  # of the largest magnitude of an output: FP32 sums in another order differ by about 1e-6
Run = Callable[[Tensors], Tensors]


def feeds(entry: Entry, store: Store) -> list[Tensors]:
    """Production-like feeds at two batch sizes, calibration feeds, and the same values shuffled into other shapes."""
    real = [*entry.requests(store, 2, 1), *entry.requests(store, 1, 1), *entry.splits(store).calibration.feeds[:2]]
    axes = entry.dynamic_axes()
    return real + [_reshaped(feed, axes, seed) for seed, feed in enumerate(real[:2])]


def references(run: Run, inputs: Sequence[Tensors], real: int) -> list[tuple[Tensors, Tensors]]:
    """(feed, outputs) pairs of the model itself. It must take the first `real` feeds; shapes after them it may refuse.

    Raises BadModel when the model fails on its own data or answers with NaN or infinity.
    """
    pairs = []
    for index, feed in enumerate(inputs):
        try:
            outputs = run(feed)
        except Exception as error:
            if index < real:
                raise BadModel(f"the model fails on its own data {shapes_of(feed)}: {words_of(error)}") from error
            continue
        require_finite(outputs, feed)
        pairs.append((feed, outputs))
    return pairs


def worst_error(run: Run, pairs: Sequence[tuple[Tensors, Tensors]]) -> float:
    """Largest absolute difference over all feeds and outputs. Raises BadModel with the shape at which the graph is wrong."""
    worst = 0.0
    for feed, expected in pairs:
        try:
            outputs = run(feed)
        except PipelineError:
            raise
        except Exception as error:
            raise BadModel(f"the exported graph fails at {shapes_of(feed)}: {words_of(error)}") from error
        require_finite(outputs, feed)
        worst = max(worst, *(_difference(name, outputs[name], expected[name], feed) for name in expected))
    return worst


def require_finite(outputs: Tensors, feed: Tensors) -> None:
    """Raises BadModel when an output holds NaN or infinity."""
    for name, array in outputs.items():
        if np.issubdtype(array.dtype, np.floating) and not np.isfinite(array).all():
            raise BadModel(f"output {name} holds NaN or infinity at {shapes_of(feed)}", "check the weights and the input preparation")


def shapes_of(feed: Tensors) -> str:
    """'input_ids [2, 17], attention_mask [2, 17]'."""
    return ", ".join(f"{name} {list(array.shape)}" for name, array in feed.items())


def _difference(name: str, got: np.ndarray, expected: np.ndarray, feed: Tensors) -> float:
    if got.shape != expected.shape:
        raise BadModel(f"output {name} has shape {list(got.shape)} instead of {list(expected.shape)} at {shapes_of(feed)}")
    difference = float(np.abs(got.astype(np.float64) - expected.astype(np.float64)).max(initial=0.0))
    if difference > TOLERANCE * max(1.0, float(np.abs(expected).max(initial=0.0))):
        raise BadModel(f"output {name} is off by {difference:.3g} at {shapes_of(feed)}")
    return difference


def _reshaped(feed: Tensors, axes: Mapping[str, Mapping[int, str]], seed: int) -> dict[str, np.ndarray]:
    """The feed's own values, shuffled, with every dynamic dimension at another size; the same name gets the same size."""
    rng = np.random.default_rng(seed)
    sizes = {dim: _other(feed[name].shape[axis]) for name in feed for axis, dim in axes.get(name, {}).items()}
    result = {}
    for name, array in feed.items():
        dims = axes.get(name, {})
        shape = tuple(sizes[dims[axis]] if axis in dims else size for axis, size in enumerate(array.shape))
        result[name] = np.resize(rng.permutation(array.reshape(-1)), shape)
    return result


def _other(size: int) -> int:
    return size // 2 + 1 if size > 4 else size + 1
