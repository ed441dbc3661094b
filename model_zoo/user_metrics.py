"""How outputs of users' models are scored: one pair of numbers per sample, whose sums make the metric."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from model_zoo.facts import Tensors
from model_zoo.user import ModelTable
from tasks.errors import BadModel
from tasks.facts import Metric

Pair = tuple[float, float]

METRICS = {
    "top1": Metric(name="top1", unit="sample", proportion=True),
    "f1": Metric(name="f1", unit="sample"),
    "exact": Metric(name="exact", unit="sample", proportion=True),
    "mean_absolute_error": Metric(name="mean_absolute_error", unit="sample", higher_is_better=False),
    "agreement": Metric(name="agreement", unit="sample", proportion=True, fidelity=True),
    "cosine": Metric(name="cosine", unit="sample", fidelity=True),
}


def decided(output: np.ndarray, threshold: float) -> np.ndarray:
    """The class of one sample: argmax over the last axis, or above the threshold where there is a single number."""
    if output.ndim and output.shape[-1] > 1:
        return output.argmax(-1)
    return (output.reshape(output.shape[:-1]) > threshold).astype(np.int64)


def _top1(output: np.ndarray, label: np.ndarray, threshold: float) -> Pair:
    if output.ndim and not 0 <= label < max(output.shape[-1], 2):
        raise BadModel(f"a label is {label}, but the model has {max(output.shape[-1], 2)} classes", "number the classes from 0")
    return _exact(output, label, threshold)


def _f1(output: np.ndarray, label: np.ndarray, threshold: float) -> Pair:
    if label not in (0, 1):
        raise BadModel(f"a label is {label}, but f1 takes 0 and 1", "use metric = 'top1' for more classes")
    said = bool(decided(output, threshold) == 1)
    both = 2.0 * (said and label == 1)
    return both, both + float(said != (label == 1))


def _exact(output: np.ndarray, label: np.ndarray, threshold: float) -> Pair:
    said = decided(output, threshold)
    if said.shape != np.shape(label):
        raise BadModel(f"a label has shape {np.shape(label)}, but the output decides {said.shape}", "check metric, output and labels")
    return float(np.array_equal(said, label)), 1.0


def _mean_absolute_error(output: np.ndarray, label: np.ndarray, threshold: float) -> Pair:  # noqa: ARG001
    if output.size != np.size(label):
        raise BadModel(f"a label has {np.size(label)} numbers, but the output has {output.size}", "check output and labels")
    return float(np.abs(output.reshape(-1) - np.reshape(label, -1)).mean()), 1.0


def _agreement(output: np.ndarray, label: np.ndarray, threshold: float) -> Pair:
    return float(np.array_equal(decided(output, threshold), decided(label, threshold))), 1.0


def _cosine(output: np.ndarray, label: np.ndarray, threshold: float) -> Pair:  # noqa: ARG001
    norm = float(np.linalg.norm(output) * np.linalg.norm(label))
    return (float(np.vdot(output, label)) / norm if norm else float(np.array_equal(output, label))), 1.0


SCORERS: Mapping[str, Callable[[np.ndarray, np.ndarray, float], Pair]] = {
    "top1": _top1,
    "f1": _f1,
    "exact": _exact,
    "mean_absolute_error": _mean_absolute_error,
    "agreement": _agreement,
    "cosine": _cosine,
}


def metric_of(table: ModelTable) -> Metric:
    """The table's metric; without one, likeness to FP32, which can never approve."""
    return METRICS[table.metric or ("cosine" if table.task == "text-embedding" else "agreement")]


def check_labels(metric: Metric, labels: np.ndarray | None, where: str) -> None:
    """Labels that a metric can never score are refused before a model is exported for them.

    Raises:
        BadModel: there are none, they are no classes, f1 has more than two, or a sample has more than one label.
    """
    if metric.fidelity or (metric.name == "mean_absolute_error" and labels is not None):
        return
    if labels is None:
        raise BadModel(f"{where} has no labels to score {metric.name} with", "add labels, or leave out metric")
    if labels.ndim != 1 and metric.name in ("top1", "f1"):
        raise BadModel(
            f"{where}: labels have shape {labels.shape}, but {metric.name} takes one class per sample", "or use metric = 'exact'"
        )
    bad = labels[(labels != np.floor(labels)) | (labels < 0)]
    if bad.size:
        raise BadModel(
            f"{where}: a label is {bad[0]}, which is no class", "number the classes from 0, or use metric = 'mean_absolute_error'"
        )
    if metric.name == "f1" and labels.size and labels.max() > 1:
        raise BadModel(f"{where}: a label is {labels.max()}, but f1 takes 0 and 1", "use metric = 'top1' for more classes")


def pairs(metric: Metric, output: str, threshold: float, outputs: Sequence[Tensors], labels: Mapping[str, np.ndarray]) -> np.ndarray:
    """float64 (samples, 2). Likeness to FP32 finds FP32's outputs in `labels`, flat and one after the other, with their ends.

    Raises:
        BadModel: labels and outputs do not fit each other.
    """
    samples = [sample for one in outputs for sample in one[output]]
    truth: Sequence[np.ndarray]
    if metric.fidelity:
        flat = np.split(labels["reference"], labels["ends"][:-1])
        truth = [part.reshape(sample.shape) for part, sample in zip(flat, samples, strict=True)]
    elif "labels" in labels:
        truth = list(labels["labels"])
    else:
        raise BadModel(
            f"there are no labels to score {metric.name} with", "add labels, or use metric = 'agreement', which can never approve"
        )
    if len(truth) != len(samples):
        raise BadModel(f"{len(truth)} labels, but {len(samples)} outputs", "the model must give one output per sample, on its first axis")
    return np.array([SCORERS[metric.name](sample, label, threshold) for sample, label in zip(samples, truth, strict=True)], np.float64)


def reference(split_outputs: Sequence[Tensors], output: str) -> dict[str, np.ndarray]:
    """Outputs of the FP32 model as labels."""
    samples = [sample for one in split_outputs for sample in one[output]]
    return {
        "reference": np.concatenate([np.asarray(sample, np.float32).reshape(-1) for sample in samples]),
        "ends": np.cumsum([np.size(sample) for sample in samples]),
    }
