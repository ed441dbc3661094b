"""Values, labels and archives of users that cannot be what they seem: refused when the entry is made, before anything is exported."""

import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from zoo_builders import ROWS, save_data, save_linear, writer

from model_zoo import user_files
from model_zoo.facts import Entry
from model_zoo.user_data import array_samples
from tasks.errors import BadModel, BadRequest, PipelineError
from tasks.facts import TensorSpec

CLASSES = np.arange(ROWS) % 2


@pytest.fixture
def toml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Entry]:
    """Writes $CROSSGRADE_MODELS and returns the entry `mine`."""
    return writer(tmp_path, monkeypatch)


@pytest.fixture
def x(tmp_path: Path) -> np.ndarray:
    """Good inputs of a good model beside the TOML file."""
    return save_data(tmp_path / "data.npz", save_linear(tmp_path / "m.onnx"))[0]


@pytest.mark.parametrize(
    ("value", "dtype", "wants", "message"),
    [
        (1e300, "float64", "float32", r"ids is 1e\+300 in row 3, which float32 cannot hold"),
        (70000.0, "float32", "float16", "ids is 70000.0 in row 3"),
        (2**40 + 7, "int64", "int32", "ids is 1099511627783 in row 3, which int32 cannot hold"),
        (2**63, "uint64", "int64", "ids is 9223372036854775808 in row 3"),
    ],
)
def test_values_that_the_models_type_cannot_hold(value: float, dtype: str, wants: str, message: str):
    """A cast never turns a value into infinity or into another number."""
    array = np.arange(8).astype(dtype)
    spec = TensorSpec(name="ids", dtype=wants, shape=("batch",))
    assert array_samples({"ids": array}, None, [spec], "d.npz").feed(np.array([2]))["ids"].dtype == wants
    array[3] = value
    with pytest.raises(BadModel, match=message):
        array_samples({"ids": array}, None, [spec], "d.npz")


@pytest.mark.parametrize(
    ("metric", "labels", "message"),
    [
        ("top1", CLASSES + 0.5, "a label is 0.5, which is no class"),
        ("f1", CLASSES / 2, "a label is 0.5, which is no class"),
        ("exact", CLASSES / 2, "a label is 0.5"),
        ("top1", CLASSES - 1, "a label is -1"),
        ("top1", np.stack([CLASSES, CLASSES], 1), r"labels have shape \(200, 2\), but top1 takes one class per sample"),
        ("f1", CLASSES[:, None], r"labels have shape \(200, 1\)"),
        ("top1", np.array(1), "labels is a single value"),
        ("mean_absolute_error", np.where(CLASSES == 1, np.nan, 0), "the label of row 1 is missing or not finite"),
        ("f1", np.arange(ROWS) % 3, "a label is 2, but f1 takes 0 and 1"),
    ],
)
def test_labels_that_the_metric_cannot_score(metric: str, labels: np.ndarray, message: str, toml, x, tmp_path: Path):
    """Asking for the entry is enough to be told."""
    np.savez(tmp_path / "data.npz", x=x, labels=labels)
    with pytest.raises(BadModel, match=message):
        toml(f'[mine]\nonnx = "m.onnx"\ndata = "data.npz"\nmetric = "{metric}"\n')


def test_labels_may_be_whole_numbers_of_any_type(toml, x, tmp_path: Path):
    """1.0 is class 1, as a .csv with a gap would have it."""
    np.savez(tmp_path / "data.npz", x=x, labels=CLASSES.astype(np.float64))
    assert toml('[mine]\nonnx = "m.onnx"\ndata = "data.npz"\nmetric = "top1"\n').spec.metric.name == "top1"


def test_f1_of_three_folders(toml, tmp_path: Path):
    """Folders of images are labels too, and no image is read to find out."""
    save_linear(tmp_path / "m.onnx")
    for name in "abc":
        (tmp_path / "images" / name).mkdir(parents=True)
    with pytest.raises(BadModel, match="a label is 2, but f1 takes 0 and 1"):
        toml('[mine]\nonnx = "m.onnx"\ndata = "images"\nmetric = "f1"\n')


def npy(array: np.ndarray) -> bytes:
    """An array as a .npy file holds it."""
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def promise(count: int) -> bytes:
    """The header of an array of that many numbers, and four of them."""
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": "<f8", "fortran_order": False, "shape": (count,)})
    return buffer.getvalue() + bytes(32)


@pytest.mark.parametrize(
    ("member", "content", "message"),
    [
        ("x.npy", promise(10**30), "is"),
        ("x.npy", promise(10**12), "is"),
        ("x.npy", npy(np.zeros(4))[:-5], "is damaged"),
        ("x.txt", b"hello", "x.txt is no array"),
    ],
)
def test_an_archive_whose_members_are_no_arrays(member: str, content: bytes, message: str, tmp_path: Path):
    """A header that promises more than there is, a cut member, and something else altogether."""
    with zipfile.ZipFile(tmp_path / "data.npz", "w") as archive:
        archive.writestr(member, content)
    with pytest.raises(BadModel, match=f"data.npz:? {message}"):
        user_files.npz_arrays(tmp_path / "data.npz")


def test_an_npy_renamed(tmp_path: Path):
    """One array is no archive."""
    (tmp_path / "data.npz").write_bytes(npy(np.zeros(4)))
    with pytest.raises(BadModel, match=r"is not an \.npz file"):
        user_files.npz_arrays(tmp_path / "data.npz")


def test_an_archive_that_unpacks_to_more_than_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The sizes that an archive declares are summed before anything is unpacked."""
    np.savez_compressed(tmp_path / "data.npz", x=np.zeros(100_000), y=np.zeros(100_000))
    monkeypatch.setattr(user_files, "MOST_BYTES", 1_000_000)
    monkeypatch.setattr(np, "load", lambda *_, **__: pytest.fail("the archive was unpacked"))
    with pytest.raises(BadModel, match="unpacks to 1600[0-9]{3} bytes, more than 1000000"):
        user_files.npz_arrays(tmp_path / "data.npz")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("size = [0, -1]", "size.0: Input should be greater than or equal to 1"),
        ("mean = [0.5, 0.5]", "mean and std take one number for each channel"),
        ("std = [0.0]", "std.0: Input should be greater than 0"),
        ("columns = { x = [] }", "columns.x"),
        ("threshold = nan", "threshold: Input should be a finite number"),
    ],
)
def test_numbers_of_a_table_that_make_no_sense(line: str, message: str, toml, x):
    """The field is named."""
    with pytest.raises(BadRequest, match=message):
        toml(f'[mine]\nonnx = "m.onnx"\ndata = "data.npz"\n{line}\n')


def test_mean_of_three_channels_for_one():
    """The table's channels are compared with the model's."""
    from model_zoo.user import ModelTable

    table = ModelTable(onnx="m.onnx", data="images", mean=(0.5, 0.5, 0.5))
    spec = TensorSpec(name="image", dtype="float32", shape=("batch", 1, 8, 8))
    with pytest.raises(BadModel, match="mean has 3 numbers, but image has 1 channels"):
        user_files.image_samples(Path(__file__).parent, table, spec, {})


@pytest.mark.parametrize("path", ["~nosuchuser/x.onnx", "a" * 300 + ".onnx", r"m\u0000.onnx"])
def test_paths_that_no_file_can_have(path: str, toml, x):
    """An unknown user, a name too long and a NUL end in a sentence, for each kind of file."""
    for table in (
        f'onnx = "{path}"\ndata = "data.npz"',
        f'onnx = "m.onnx"\ndata = "{path}"',
        f'hf = "{path}"\ntask = "text-embedding"\ndata = "d"',
    ):
        with pytest.raises(PipelineError):
            toml(f"[mine]\n{table}\n")
