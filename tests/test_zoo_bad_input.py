"""Models and data that are not usable: each is named, with the way out, before anything dangerous reads it."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from zoo_builders import ROWS, save_data, save_linear, writer

import model_zoo
from model_zoo import onnx_files
from model_zoo.facts import Entry
from tasks.errors import BadModel, BadRequest, PipelineError
from tasks.store import Store

TABLE = '[mine]\nonnx = "m.onnx"\ndata = "data.npz"\nmetric = "top1"\n'


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An empty store."""
    return Store(tmp_path / "store")


@pytest.fixture
def toml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Entry]:
    """Writes $CROSSGRADE_MODELS and returns the entry `mine`."""
    return writer(tmp_path, monkeypatch)


@pytest.fixture
def arrays(tmp_path: Path) -> dict[str, np.ndarray]:
    """A good model with good data, to be spoiled."""
    x, labels = save_data(tmp_path / "data.npz", save_linear(tmp_path / "m.onnx"))
    return {"x": x, "labels": labels}


def test_a_truncated_onnx_file(toml, tmp_path: Path, arrays):
    """Half a file is refused by name."""
    whole = (tmp_path / "m.onnx").read_bytes()
    for length in (0, 10, len(whole) // 2, len(whole) - 3):
        (tmp_path / "m.onnx").write_bytes(whole[:length])
        with pytest.raises(BadModel, match="m.onnx"):
            toml(TABLE)


@pytest.mark.parametrize("place", ["/etc/passwd", "../secret.bin", "sub/../../secret.bin", "link.bin"])
def test_external_data_outside_the_folder(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A graph that names data outside its folder is refused before onnx reads the data."""
    import onnx
    from onnx import external_data_helper

    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret.bin").write_bytes(b"\0" * 48)
    (folder / "link.bin").symlink_to(tmp_path / "secret.bin")
    save_linear(folder / "m.onnx")
    model = onnx.load(folder / "m.onnx")
    tensor = model.graph.initializer[0]
    external_data_helper.set_external_data(tensor, place)
    tensor.ClearField("raw_data")
    (folder / "m.onnx").write_bytes(model.SerializeToString())
    monkeypatch.setattr(external_data_helper, "load_external_data_for_model", lambda *_: pytest.fail("the data were read"))
    with pytest.raises(BadModel, match="outside its folder"):
        onnx_files.inspected(folder / "m.onnx")


def test_external_data_beside_the_file_become_one_file(tmp_path: Path, store: Store):
    """Data inside the folder are welcome, and what the pipeline goes on with is one file."""
    import onnx

    save_linear(tmp_path / "m.onnx")
    onnx.save(onnx.load(tmp_path / "m.onnx"), tmp_path / "big.onnx", save_as_external_data=True, location="big.data", size_threshold=0)
    assert not onnx_files.external_data(onnx.load(onnx_files.upgraded(tmp_path / "big.onnx", store), load_external_data=False).graph)


def test_external_data_in_a_subgraph_are_seen(tmp_path: Path):
    """A tensor hidden in the branch of an If is found too."""
    from onnx import TensorProto, helper

    hidden = TensorProto(name="h", data_type=TensorProto.FLOAT, dims=[1], data_location=TensorProto.EXTERNAL)
    hidden.external_data.add(key="location", value="/etc/passwd")
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])
    branch = helper.make_graph([helper.make_node("Constant", [], ["y"], value=hidden)], "branch", [], [out])
    flag = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    node = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
    path = tmp_path / "m.onnx"
    path.write_bytes(helper.make_model(helper.make_graph([node], "g", [flag], [out])).SerializeToString())
    with pytest.raises(BadModel, match="outside its folder"):
        onnx_files.inspected(path)


def test_labels_of_the_wrong_length(toml, tmp_path: Path, arrays, store):
    """Both lengths are named."""
    np.savez(tmp_path / "data.npz", x=arrays["x"], labels=arrays["labels"][:-1])
    with pytest.raises(BadModel, match=f"labels has {ROWS - 1} rows, but x has {ROWS}"):
        toml(TABLE).splits(store)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_not_finite(value: float, toml, tmp_path: Path, arrays, store):
    """The row is named."""
    arrays["x"][17, 2] = value
    np.savez(tmp_path / "data.npz", **arrays)
    with pytest.raises(BadModel, match="x is not finite in row 17"):
        toml(TABLE).splits(store)


def test_empty_data(toml, tmp_path: Path, arrays, store):
    """Nothing cannot be scored."""
    np.savez(tmp_path / "data.npz", x=arrays["x"][:0], labels=arrays["labels"][:0])
    with pytest.raises(BadModel, match="holds 0 different samples"):
        toml(TABLE).splits(store)


def test_one_sample_with_two_labels(toml, tmp_path: Path, arrays, store):
    """Duplicates that contradict each other are refused with their rows."""
    arrays["x"][9] = arrays["x"][4]
    arrays["labels"][9] = arrays["labels"][4] + 1
    np.savez(tmp_path / "data.npz", **arrays)
    with pytest.raises(BadModel, match="rows 4 and 9 are the same sample with different labels"):
        toml(TABLE).splits(store)


def test_an_array_that_is_no_input(toml, tmp_path: Path, arrays, store):
    """A misspelt array names the nearest input."""
    np.savez(tmp_path / "data.npz", x=arrays["x"], lables=arrays["labels"])
    with pytest.raises(BadModel, match="'lables', which is no input .* did you mean 'labels'"):
        toml(TABLE).splits(store)


def test_an_unknown_column(toml, tmp_path: Path, arrays, store):
    """A misspelt column names the nearest one, for inputs and for the label."""
    import pandas as pd

    pd.DataFrame(arrays["x"], columns=list("abcd")).assign(kind=arrays["labels"]).to_csv(tmp_path / "d.csv", index=False)
    base = '[mine]\nonnx = "m.onnx"\ndata = "d.csv"\nmetric = "top1"\n'
    with pytest.raises(BadModel, match="no column 'kinds'. did you mean 'kind'"):
        toml(base + 'columns = { x = ["a", "b", "c", "d"] }\nlabel = "kinds"\n').splits(store)
    with pytest.raises(BadModel, match="no column 'e'"):
        toml(base + 'columns = { x = ["a", "b", "c", "e"] }\nlabel = "kind"\n').splits(store)


def test_pickled_arrays(toml, tmp_path: Path, arrays, store):
    """An .npz with Python objects is refused without unpickling."""
    np.savez(tmp_path / "data.npz", x=arrays["x"], labels=np.array([{}] * ROWS, dtype=object))
    with pytest.raises(BadModel, match="pickled Python objects"):
        toml(TABLE).splits(store)


def test_a_file_that_is_no_npz(toml, tmp_path: Path, arrays, store):
    """Rubbish under the right name is named."""
    (tmp_path / "data.npz").write_bytes(b"PK\x03\x04 rubbish")
    with pytest.raises(BadModel, match="data.npz"):
        toml(TABLE).splits(store)


def test_a_shape_that_does_not_fit(toml, tmp_path: Path, arrays, store):
    """The shape of the data and of the model are both named."""
    np.savez(tmp_path / "data.npz", x=arrays["x"][:, :3], labels=arrays["labels"])
    with pytest.raises(BadModel, match=r"x has shape \(200, 3\), but the model takes"):
        toml(TABLE).splits(store)


def test_labels_beyond_the_classes(toml, tmp_path: Path, arrays, store):
    """A label that the model cannot give is an error, not a wrong answer."""
    np.savez(tmp_path / "data.npz", x=arrays["x"], labels=arrays["labels"] + 3)
    entry = toml(TABLE)
    split = entry.splits(store).evaluation
    with pytest.raises(BadModel, match="3 classes"):
        entry.score([{"logits": np.zeros((len(split.hashes), 3), np.float32)}], split.labels)


def test_a_path_that_leaves_the_folder(toml, arrays):
    """`..` is refused; absolute paths are said on purpose."""
    with pytest.raises(BadModel, match="leaves the folder"):
        toml('[mine]\nonnx = "../m.onnx"\ndata = "data.npz"\n')


def test_an_image_that_links_outside(toml, tmp_path: Path, store):
    """A link out of the folder of images is refused."""
    save_linear(tmp_path / "m.onnx")
    (tmp_path / "images" / "a").mkdir(parents=True)
    (tmp_path / "images" / "a" / "x.png").symlink_to("/etc/passwd")
    with pytest.raises(BadModel, match="is a link out of"):
        toml('[mine]\nonnx = "m.onnx"\ndata = "images"\nmetric = "top1"\n').splits(store)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('onnx = "m.onnx"\ndata = "data.npz"\nmetrik = "top1"\n', "unknown field 'metrik'. did you mean 'metric'"),
        ('onnx = "m.onnx"\ndata = "data.npz"\nmetric = "top5"\n', "metric: Input should be"),
        ('onnx = "m.onnx"\nhf = "x/y"\ndata = "data.npz"\n', "exactly one of hf, onnx, torch"),
        ('onnx = "m.onnx"\n', "data is missing"),
        ('onnx = "none.onnx"\ndata = "data.npz"\n', "does not exist"),
        ('torch = "no_such_module:build"\ndata = "data.npz"\n', "cannot be imported"),
        ('onnx = "m.onnx"\ndata = "data.npz"\noutput = "logit"\n', "did you mean 'logits'"),
        (f'onnx = "m.onnx"\ndata = "data.npz"\nsha256 = "{"0" * 64}"\n', "is pinned"),
    ],
)
def test_a_table_that_makes_no_sense(text: str, message: str, toml, arrays):
    """The field is named, and what would be right."""
    with pytest.raises(PipelineError, match=message):
        toml(f"[mine]\n{text}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[mine\n", "is not TOML"),
        ("[Mine]\n", "is not a usable name"),
        ("[silero-vad]\n", "which the built-in zoo has already"),
        ('onnx = "m.onnx"\n', "stands outside a table"),
    ],
)
def test_a_file_that_makes_no_sense(text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The file is named before any model of it is used."""
    (tmp_path / "models.toml").write_text(text)
    monkeypatch.setenv("CROSSGRADE_MODELS", str(tmp_path / "models.toml"))
    with pytest.raises(BadRequest, match=message):
        model_zoo.names()
