"""Readers of users' data files: .npz, .csv, .parquet and folders of images."""

import json
import os
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from model_zoo.data import sample_hash
from model_zoo.facts import Tensors
from model_zoo.user import ModelTable
from model_zoo.user_data import Samples, array_samples, first_line, nearest
from tasks.errors import BadModel
from tasks.facts import TensorSpec

if TYPE_CHECKING:
    import pandas as pd

IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".webp")
MOST_BYTES = 8 * 2**30
HOW_TO_SAVE = "save plain arrays: np.savez(path, x=..., labels=...)"
UNREADABLE = (
    OSError,
    EOFError,
    RuntimeError,
    KeyError,
    TypeError,
    AttributeError,
    OverflowError,
    MemoryError,
    zipfile.BadZipFile,
    zlib.error,
)
Tokenize = Callable[[Sequence[str]], Tensors]


def npz_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of an .npz; never unpickles.

    Raises:
        BadModel: the file is damaged or holds Python objects.
    """
    try:
        with zipfile.ZipFile(path) as members:
            declared = sum(member.file_size for member in members.infolist())  # reading stops there, whatever is in the file
        if declared > (most := _most_bytes()):
            raise BadModel(f"{path.name} unpacks to {declared} bytes, more than {most}", "give fewer samples")
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except ValueError as error:
        pickled = "holds pickled Python objects" if "allow_pickle" in str(error) else "is damaged"
        raise BadModel(f"{path.name} {pickled}: {first_line(error)}", HOW_TO_SAVE) from None
    except UNREADABLE as error:
        raise BadModel(f"{path.name} is not an .npz file, or damaged: {first_line(error)}", HOW_TO_SAVE) from None
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray):  # numpy gives members without its header as bytes
            raise BadModel(f"{path.name}: {name} is no array", HOW_TO_SAVE)
    return arrays


def _most_bytes() -> int:
    """8 GiB, or half of the memory where that is less."""
    return min(MOST_BYTES, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2)


def npz_samples(path: Path, inputs: Sequence[TensorSpec]) -> Samples:
    """One array per input, and `labels`."""
    arrays = npz_arrays(path)
    labels = arrays.pop("labels", None)
    return array_samples(arrays, labels, inputs, path.name)


def table_samples(path: Path, table: ModelTable, inputs: Sequence[TensorSpec], names: Mapping[str, int]) -> Samples:
    """Columns of numbers: an input of shape (batch, n) is made of n columns, one of shape (batch,) of one."""
    frame = _frame(path)
    chosen = table.columns or {one.name: one.name for one in inputs}
    arrays = {}
    for name, columns in chosen.items():
        parts = [_numbers(frame, column, path) for column in ([columns] if isinstance(columns, str) else columns)]
        arrays[name] = parts[0] if isinstance(columns, str) else np.stack(parts, 1)
    return array_samples(arrays, _labels(frame, table, names, path), inputs, path.name)


def text_samples(path: Path, table: ModelTable, tokenize: Tokenize, names: Mapping[str, int]) -> Samples:
    """A column of text, tokenized batch by batch."""
    frame = _frame(path)
    texts = _column(frame, table.text, path)
    if texts.isna().any():
        raise BadModel(f"{path.name}: {table.text} is empty in row {int(texts.isna().to_numpy().argmax())}", "give a text in every row")
    said = [str(text) for text in texts]
    return Samples(
        hashes=tuple(sample_hash(text) for text in said),
        labels=_labels(frame, table, names, path),
        feed=lambda rows: tokenize([said[row] for row in rows]),
    )


def image_samples(folder: Path, table: ModelTable, spec: TensorSpec, names: Mapping[str, int]) -> Samples:
    """One folder per class. Images are resized to the model's height and width, scaled to [0, 1] and normalised.

    Raises:
        BadModel: no class folders, an unreadable image, a link out of the folder, or a model that takes no images.
    """
    classes = sorted(path.name for path in folder.iterdir() if path.is_dir())
    if not classes:
        raise BadModel(f"{folder} has no folders in it", "put the images of each class into a folder with the name of the class")
    files = [path for name in classes for path in sorted((folder / name).iterdir()) if path.suffix.lower() in IMAGES]
    for path in files:
        if not path.resolve().is_relative_to(folder.resolve()):
            raise BadModel(f"{path} is a link out of {folder}", "copy the image itself")
    channels = _size(table, spec)[0]
    for field, values in (("mean", table.mean), ("std", table.std)):
        if len(values) not in (0, 1, channels):
            raise BadModel(f"{field} has {len(values)} numbers, but {spec.name} has {channels} channels", "give one for each channel")
    rows = {name: row for row, name in enumerate(classes)} if not names else {name: _class(name, names, folder.name) for name in classes}
    pixels = np.stack([_image(path, table, spec) for path in files]) if files else np.zeros((0, *_size(table, spec)), np.float32)
    labels = np.array([rows[path.parent.name] for path in files], np.int64)
    return array_samples({spec.name: pixels}, labels, [spec], folder.name)


def _image(path: Path, table: ModelTable, spec: TensorSpec) -> np.ndarray:
    from PIL import Image, UnidentifiedImageError

    channels, height, width = _size(table, spec)
    try:
        with Image.open(path) as image:
            small = image.convert("L" if channels == 1 else "RGB").resize((width, height), Image.Resampling.BILINEAR)
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise BadModel(f"{path} is not a readable image: {error}", "replace or remove it") from None
    pixels = np.asarray(small, np.float32).reshape(height, width, channels).transpose(2, 0, 1) / 255
    mean, std = (np.array(values, np.float32).reshape(-1, 1, 1) for values in (table.mean or (0.0,), table.std or (1.0,)))
    return ((pixels - mean) / std).astype(np.float32)


def _size(table: ModelTable, spec: TensorSpec) -> tuple[int, int, int]:
    """channels, height, width: the model's own where they are fixed, the table's otherwise."""
    if len(spec.shape) != 4 or spec.shape[1] not in (1, 3):
        raise BadModel(f"{spec.name} has shape {spec.shape}: not (batch, 1 or 3 channels, height, width)", "give the data as an .npz")
    fixed = [axis for axis in spec.shape[2:] if isinstance(axis, int)]
    size = fixed if len(fixed) == 2 else list(table.size or ())
    if len(size) != 2:
        raise BadModel(f"{spec.name} leaves its height and width open", "add size = [height, width]")
    return int(spec.shape[1]), size[0], size[1]


def _frame(path: Path) -> "pd.DataFrame":
    import pandas as pd

    try:
        return pd.read_csv(path) if path.suffix == ".csv" else pd.read_parquet(path)
    except (ValueError, OSError, KeyError, NotImplementedError, MemoryError) as error:  # pandas' and pyarrow's own errors are ValueErrors
        raise BadModel(
            f"{path.name} cannot be read: {first_line(error)}", "save it again as UTF-8 .csv with a header, or .parquet"
        ) from None


def _column(frame: "pd.DataFrame", column: str, path: Path) -> "pd.Series":
    if column not in frame:
        raise BadModel(f"{path.name} has no column {column!r}", nearest(column, [str(name) for name in frame.columns]))
    return frame[column]


def _numbers(frame: "pd.DataFrame", column: str, path: Path) -> np.ndarray:
    series = _column(frame, column, path)
    if series.dtype.kind not in "biuf":
        raise BadModel(f"{path.name}: column {column!r} holds {series.dtype}, not numbers", "encode it as numbers first")
    return series.to_numpy()


def _labels(frame: "pd.DataFrame", table: ModelTable, names: Mapping[str, int], path: Path) -> np.ndarray | None:
    """The label column: numbers as they are, names through the model's own names of classes; None where there is no such column."""
    unlabelled = table.metric in (None, "agreement", "cosine") and "label" not in table.model_fields_set
    if unlabelled and table.label not in frame:
        return None
    series = _column(frame, table.label, path)
    if series.isna().any():
        raise BadModel(f"{path.name}: {table.label} is empty in row {int(series.isna().to_numpy().argmax())}", "label every row")
    if series.dtype.kind in "biuf":
        return series.to_numpy()
    return np.array([_class(str(name), names, path.name) for name in series], np.int64)


def _class(name: str, names: Mapping[str, int], where: str) -> int:
    if name not in names:
        known = json.dumps(sorted(names)) if names else "none"
        raise BadModel(f"{where}: {name!r} is no class of the model", f"its classes: {known}; or label with numbers")
    return names[name]
