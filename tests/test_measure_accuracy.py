"""Scores belong to an engine and to data that calibrated nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from model_zoo.facts import Split, Splits, Tensors
from tasks.errors import BadModel
from tasks.facts import Artifact, ModelSpec
from tasks.measure.accuracy import Outputs, score
from tasks.store import Store
from tests.builders import TinyEntry, a_cell, a_simulation, a_target


class Signs:
    """Is the sum of four numbers positive? The engine is right when its one weight is."""

    spec: ModelSpec = TinyEntry.spec

    def __init__(self, overlap: bool = False) -> None:
        self.overlap, self.scored = overlap, 0

    def splits(self, store: Store) -> Splits:
        """Three splits of 40 samples, ten to a feed; with `overlap`, calibration shares one with evaluation."""
        calibration, development, evaluation = (self._split(seed) for seed in range(3))
        if self.overlap:
            calibration = replace(calibration, hashes=(*calibration.hashes, evaluation.hashes[7]))
        return Splits(calibration, development, evaluation)

    def score(self, outputs: Sequence[Tensors], labels: Mapping[str, np.ndarray]) -> np.ndarray:
        """(right, 1) for each sample."""
        self.scored += 1
        said = np.concatenate([output["y"][:, 0] > 0 for output in outputs])
        return np.stack([said == labels["positive"], np.ones(said.size)], axis=1)

    @staticmethod
    def _split(seed: int) -> Split:
        data = np.random.default_rng(seed).standard_normal((40, 4)).astype(np.float32)
        feeds = [{"x": part} for part in np.split(data, 4)]
        return Split(feeds, {"positive": data.sum(axis=1) > 0}, tuple(f"{seed:02x}{index:062x}" for index in range(40)))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An empty store."""
    return Store(tmp_path / "home")


def an_engine(store: Store, weight: float = 1.0) -> Artifact:
    """y = weight * sum(x)."""
    tensor = helper.make_tensor("w", TensorProto.FLOAT, [4, 1], [weight] * 4)
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 1])]
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", inputs, outputs, [tensor])
    data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10).SerializeToString()
    return Artifact(kind="engine", format="onnx", sha256=store.put(data), size_bytes=len(data))


@pytest.mark.parametrize(("weight", "right"), [(1.0, 1.0), (-1.0, 0.0)])
def test_score_of_an_engine(weight: float, right: float, store: Store) -> None:
    """Every sample is scored on the engine's real outputs, and the score names engine, data and calibration."""
    engine, entry = an_engine(store, weight), Signs()
    found = score(entry, engine, a_cell(), "evaluation", store)
    assert store.array(found.samples).mean(axis=0).tolist() == [right, 1.0]
    assert (found.count, found.engine, found.split) == (40, engine.sha256, "evaluation")
    assert found.data != found.calibration


def test_score_is_made_once_for_the_same_thing(store: Store) -> None:
    """The same engine and split are scored once, whatever the number of threads; another split or engine is scored anew."""
    entry, engine = Signs(), an_engine(store)
    assert score(entry, engine, a_cell(), "evaluation", store) == score(entry, engine, a_cell(), "evaluation", store)
    score(entry, engine, a_cell(target=a_target(threads=2)), "evaluation", store)
    assert entry.scored == 1
    score(entry, engine, a_cell(), "development", store)
    score(entry, an_engine(store, 2.0), a_cell(), "evaluation", store)
    assert entry.scored == 3


@pytest.mark.parametrize("split", ["development", "evaluation"])
def test_calibrated_samples_may_not_be_scored(split: str, store: Store) -> None:
    """Where calibration and evaluation share a sample, nothing of the entry is scored."""
    with pytest.raises(BadModel, match="sample 7 of evaluation .* is also in calibration, sample 40"):
        score(Signs(overlap=True), an_engine(store), a_cell(), split, store)


@pytest.mark.parametrize(
    ("start", "message"), [(0, "is also in development, sample 0"), (30, "sample 30 of evaluation .* is also in evaluation, sample 0")]
)
def test_samples_count_once(start: int, message: str, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A custom entry that judges what its recipe was chosen on, or one sample twice, is refused before anything runs."""

    def leaky(self: Signs, store: Store) -> Splits:
        calibration, development, evaluation = (self._split(seed) for seed in range(3))
        taken = (development if start == 0 else evaluation).hashes[:10]
        hashes = (*taken, *evaluation.hashes[10:]) if start == 0 else (*evaluation.hashes[:30], *taken)
        return Splits(calibration, development, replace(evaluation, hashes=hashes))

    monkeypatch.setattr(Signs, "splits", leaky)
    with pytest.raises(BadModel, match=message):
        score(Signs(), an_engine(store), a_cell(), "evaluation", store)


def test_one_pair_for_each_hash(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pairs without a hash of their own would hide repeated samples."""
    monkeypatch.setattr(Signs, "score", lambda self, outputs, labels: np.ones((80, 2)))
    with pytest.raises(BadModel, match="80 pairs for a split of 40 hashes"):
        score(Signs(), an_engine(store), a_cell(), "evaluation", store)


def test_nan_names_output_and_feed(store: Store) -> None:
    """An engine whose outputs are not finite has no score but an error that says where, and nothing is cached."""
    for _ in range(2):
        with pytest.raises(BadModel, match="output 'y' of feed 0 has 10 of 10 values that are NaN or infinite"):
            score(Signs(), an_engine(store, float("nan")), a_cell(), "evaluation", store)


def test_simulated_nan_is_caught(store: Store) -> None:
    """A simulated device that answers NaN is caught by the same gate."""
    cell = a_cell("simulated", target=a_target(simulated=True, simulation=a_simulation(fault="nan")))
    with pytest.raises(BadModel, match="NaN"):
        score(Signs(), an_engine(store), cell, "development", store)


@pytest.mark.parametrize("pairs", [np.ones(40), np.full((40, 2), np.nan), np.zeros((0, 2))])
def test_bad_pairs_are_refused(pairs: np.ndarray, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry that does not return finite pairs is told what is expected."""
    monkeypatch.setattr(Signs, "score", lambda self, outputs, labels: pairs)
    with pytest.raises(BadModel, match=r"no finite \(samples, 2\) pairs"):
        score(Signs(), an_engine(store), a_cell(), "evaluation", store)


def test_outputs_are_computed_when_asked_for(store: Store) -> None:
    """Outputs behave as a sequence, run a feed only when it is looked at, and are copies."""

    class Session:
        """Answers with one buffer that it reuses."""

        def __init__(self) -> None:
            self.steps, self.buffer = 0, np.zeros(1)

        def bind(self, inputs: Tensors) -> None:
            """Keep the input."""
            self.input = inputs["x"]

        def step(self) -> None:
            """Double it into the buffer."""
            self.steps += 1
            self.buffer[:] = 2 * self.input

        def read(self) -> dict[str, np.ndarray]:
            """The buffer itself."""
            return {"y": self.buffer}

    session = Session()
    outputs = Outputs(session, [{"x": np.array([float(index)])} for index in range(5)], "cell")
    assert (len(outputs), session.steps) == (5, 0)
    assert [float(output["y"][0]) for output in outputs] == [0, 2, 4, 6, 8]
    assert [float(output["y"][0]) for output in outputs[3:]] == [6, 8]
    assert float(outputs[-1]["y"][0]) == 8
    first, second = outputs[1], outputs[2]
    assert (first["y"][0], second["y"][0]) == (2, 4)
