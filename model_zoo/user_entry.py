"""An entry made of a user's table: a source, labelled data, a metric."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from model_zoo import user_files, user_metrics
from model_zoo.data import Arrays, cached_arrays, check_splits, stamp
from model_zoo.facts import Split, Splits, Tensors, data_digest
from model_zoo.user import ModelTable
from model_zoo.user_data import Samples, carve, checked, inside, nearest, split_rows
from model_zoo.user_sources import Source
from model_zoo.user_torch import table_digest
from tasks.errors import BadModel, BadRequest
from tasks.facts import ModelSpec
from tasks.store import Store

if TYPE_CHECKING:
    import torch


class UserEntry:
    """See `model_zoo.facts.Entry`."""

    def __init__(self, name: str, table: ModelTable, folder: Path, source: Source) -> None:
        self.table, self.source = table, source
        self.path = inside(folder, table.data or "")
        self.output = table.output or source.outputs[0]
        if self.output not in source.outputs:
            raise BadRequest(f"[{name}] has no output {self.output!r}", nearest(self.output, source.outputs))
        self.spec = ModelSpec(
            id=name,
            title=table.title or name,
            task=table.task or "user model",
            request=table.request,
            source=source.origin,
            license=table.license,
            data_source=self.path.name,
            data_license=table.data_license,
            files=source.files | {self.path.name: stamp(self.path), "table": table_digest(table)},  # other labels: another model to judge
            inputs=source.inputs,
            outputs=source.outputs,
            metric=user_metrics.metric_of(table),
            has_torch=source.module is not None,
            parameters=source.parameters,
        )
        self._check_early()

    def _check_early(self) -> None:
        """An hour of export is no time to learn of a bad label; images are not read for it: their labels are the folders they lie in."""
        if self.path.is_dir():
            user_metrics.check_labels(self.spec.metric, np.arange(sum(one.is_dir() for one in self.path.iterdir())), self.path.name)
        else:
            _ = self._samples

    def onnx(self, store: Store) -> Path | None:
        """The checked .onnx file, or None."""
        return self.source.onnx(store) if self.source.onnx else None

    def torch_module(self, store: Store) -> "torch.nn.Module | None":  # noqa: ARG002
        """The module in eval mode, or None."""
        return self.source.module() if self.source.module else None

    def dynamic_axes(self) -> dict[str, dict[int, str]]:
        """What the source leaves open."""
        return self.source.axes

    def splits(self, store: Store) -> Splits:
        """15 % calibration, 25 % development, 60 % evaluation, by the hash of each sample."""
        made = carve(self._samples, self._fixed_batch or self.table.batch, self.path.name)
        if self.spec.metric.fidelity:
            parts = {name: self._with_reference(getattr(made, name), store) for name in ("development", "evaluation")}
            made = Splits(calibration=made.calibration, **parts)
        return check_splits(made)

    def requests(self, store: Store, batch: int, count: int) -> list[Tensors]:  # noqa: ARG002
        """Calibration samples in turn."""
        if self._fixed_batch not in (None, batch):
            raise BadRequest(f"{self.spec.id} takes a batch of {self._fixed_batch}, not {batch}", "export it with a dynamic first axis")
        rows = split_rows(self._samples, self.path.name)["calibration"]
        return [self._samples.feed(rows[np.arange(start, start + batch) % len(rows)]) for start in range(0, batch * count, batch)]

    def score(self, outputs: Sequence[Tensors], labels: Mapping[str, np.ndarray]) -> np.ndarray:
        """The table's metric per sample."""
        return user_metrics.pairs(self.spec.metric, self.output, self.table.threshold, outputs, labels)

    @cached_property
    def _samples(self) -> Samples:
        samples = checked(self._read(), self.path.name)
        user_metrics.check_labels(self.spec.metric, samples.labels, self.path.name)
        return samples

    def _read(self) -> Samples:
        first, classes, tokenize = self.source.inputs[0], self.source.classes, self.source.tokenize
        if self.path.is_dir():
            return user_files.image_samples(self.path, self.table, first, classes)
        if self.path.suffix == ".npz":
            return user_files.npz_samples(self.path, self.source.inputs)
        if self.path.suffix not in (".csv", ".parquet"):
            raise BadModel(f"{self.path.name} is no .npz, .csv, .parquet or folder of images", "convert it to one of these")
        if tokenize:
            return user_files.text_samples(self.path, self.table, tokenize, classes)
        return user_files.table_samples(self.path, self.table, self.source.inputs, classes)

    @property
    def _fixed_batch(self) -> int | None:
        """1 where the model's first axis is fixed at 1, None where it is open."""
        sizes = {one.shape[0] for one in self.source.inputs if one.shape and isinstance(one.shape[0], int)}
        if sizes - {1}:
            raise BadModel(f"{self.spec.id} takes a fixed batch of {sorted(sizes)}", "export it with a dynamic first axis")
        return 1 if sizes else None

    def _with_reference(self, split: Split, store: Store) -> Split:
        """The split with FP32's outputs in place of labels; computed once per store."""

        def run() -> Arrays:
            return user_metrics.reference(run_fp32(self, split.feeds, store), self.output)

        key = {"model": self.spec.digest, "data": data_digest(split), "output": self.output, "batch": len(split.feeds)}
        return Split(feeds=split.feeds, labels=cached_arrays(store, key, run), hashes=split.hashes)


def run_fp32(entry: UserEntry, feeds: Sequence[Tensors], store: Store) -> list[dict[str, np.ndarray]]:
    """Outputs of the model as it came, on the CPU."""
    names = entry.spec.outputs
    if (module := entry.torch_module(store)) is not None:
        import torch

        with torch.no_grad():
            given = [module(*(torch.from_numpy(feed[one.name]) for one in entry.spec.inputs)) for feed in feeds]
        return [dict(zip(names, [part.numpy() for part in (one if isinstance(one, tuple) else (one,))], strict=True)) for one in given]
    import onnxruntime

    session = onnxruntime.InferenceSession(str(entry.onnx(store)), providers=["CPUExecutionProvider"])
    return [dict(zip(names, session.run(list(names), dict(feed)), strict=True)) for feed in feeds]
