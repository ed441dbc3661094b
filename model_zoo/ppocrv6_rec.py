"""PP-OCRv6 small recogniser: a production .onnx file without torch source, scored on rendered lines of text."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from model_zoo.data import Arrays, batches, cached_arrays, module_source, sample_hash
from model_zoo.facts import Split, Splits, Tensors
from model_zoo.files import package_folder, pinned_file
from model_zoo.onnx_files import OPSET, upgraded
from tasks.facts import Metric, ModelSpec, TensorSpec
from tasks.optional import version_of
from tasks.store import Store

FILE = "PP-OCRv6_rec_small.onnx"
LINES = {"calibration": 32, "development": 100, "evaluation": 200}
HEIGHT, WIDTH, BATCH = 48, 320, 4

SPEC = ModelSpec(
    id="ppocrv6-rec",
    title="PP-OCRv6 small recogniser",
    task="text recognition",
    request="1 line of text",
    source=f"rapidocr 3.10.0 on PyPI, {FILE}, opset raised from 11 to {OPSET}",
    license="Apache-2.0",
    data_source="lines of the Python language reference, rendered in DejaVu fonts with rotation, blur and noise",
    data_license="PSF-2.0 (text), Bitstream Vera (fonts)",
    files={FILE: "6f327246b50388f3c176ae304bd95767ea6dc0c9ae92153ef8cbe210b3c14884"},
    inputs=(TensorSpec(name="x", dtype="float32", shape=("batch", 3, HEIGHT, "width")),),
    outputs=("fetch_name_0",),
    metric=Metric(name="exact_line", unit="line", proportion=True),
    has_torch=False,
    parameters=5_267_734,
)


class PpOcr:
    """`x` (batch, 3, 48, width) in [-1, 1] -> (batch, width / 8, 18710) probabilities, read by greedy CTC."""

    spec = SPEC

    def onnx(self, store: Store) -> Path:
        """The published file, raised from opset 11, where INT8 per channel cannot be written."""
        return upgraded(_file(), store)

    def torch_module(self, store: Store) -> None:  # noqa: ARG002
        """None: only the .onnx is published."""
        return

    def dynamic_axes(self) -> dict[str, dict[int, str]]:
        """The number of lines and their width."""
        return {"x": {0: "batch", 3: "width"}, self.spec.outputs[0]: {0: "batch", 1: "steps"}}

    def splits(self, store: Store) -> Splits:
        """32 / 100 / 200 different lines, 320 pixels wide."""
        return Splits(**{name: _split(*part, size=1 if name == "calibration" else BATCH) for name, part in _lines(store).items()})

    def requests(self, store: Store, batch: int, count: int) -> list[Tensors]:
        """Calibration lines in turn."""
        images = _tensor(*_lines(store)["calibration"][:2])
        return [{"x": images[np.arange(start, start + batch) % len(images)]} for start in range(0, batch * count, batch)]

    def score(self, outputs: Sequence[Tensors], labels: Mapping[str, np.ndarray]) -> np.ndarray:
        """Exact lines: (1, 1) where every character is right."""
        alphabet = characters(_file())
        said = [read(line, alphabet) for output in outputs for line in output[self.spec.outputs[0]].argmax(2)]
        right = np.array([text == str(truth) for text, truth in zip(said, labels["text"], strict=True)], np.float64)
        return np.stack([right, np.ones_like(right)], 1)


ENTRY = PpOcr()


def characters(path: Path) -> list[str]:
    """The alphabet that the file carries in its metadata; 0 is CTC's blank."""
    import onnx

    metadata = {item.key: item.value for item in onnx.load(path).metadata_props}
    return ["", *metadata["character"].splitlines(), " "]


def read(symbols: np.ndarray, alphabet: Sequence[str]) -> str:
    """Greedy CTC: repeats merged, then blanks dropped."""
    kept = symbols[np.concatenate([[True], symbols[1:] != symbols[:-1]])]
    return "".join(alphabet[symbol] for symbol in kept)


def _file() -> Path:
    return pinned_file(SPEC, package_folder("rapidocr") / "models" / FILE)


def _tensor(pixels: np.ndarray, widths: np.ndarray) -> np.ndarray:
    """uint8 (lines, 48, 320) -> float32 (lines, 3, 48, 320) in [-1, 1]; right of the text it is 0, as PaddleOCR pads."""
    inside = np.arange(WIDTH) < widths[:, None, None]
    scaled = np.where(inside, pixels.astype(np.float32) / 127.5 - 1, np.float32(0))
    return np.repeat(scaled[:, None], 3, 1)


def _split(pixels: np.ndarray, widths: np.ndarray, text: np.ndarray, size: int) -> Split:
    return Split(
        feeds=[{"x": part} for part in batches(_tensor(pixels, widths), size)],
        labels={"text": text},
        hashes=tuple(sample_hash(image) for image in pixels),
    )


def _lines(store: Store) -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Pixels, widths and texts of each split; painted once."""
    from model_zoo import painted_lines

    texts = painted_lines.lines()[: sum(LINES.values())]
    key = {
        "model": SPEC.id,
        "text": sample_hash("\n".join(texts)),
        "tools": [version_of("pillow"), version_of("matplotlib")],
        "code": module_source(Path(painted_lines.__file__)),
    }

    def paint() -> Arrays:
        painted = [painted_lines.paint(text, seed) for seed, text in enumerate(texts)]
        return {
            "pixels": np.stack([pixels for pixels, _ in painted]),
            "widths": np.array([width for _, width in painted]),
            "text": np.array(texts),
        }

    made = cached_arrays(store, key, paint)
    ends = np.cumsum(list(LINES.values()))[:-1]
    columns = [np.split(made[name], ends) for name in ("pixels", "widths", "text")]
    return dict(zip(LINES, zip(*columns, strict=True), strict=True))
