"""Models of users: each kind of source with each kind of data, from a short TOML table."""

import json
import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from zoo_builders import ROWS, save_data, save_linear, writer

from model_zoo.facts import Entry
from model_zoo.user_entry import run_fp32
from tasks.errors import BadModel, BadRequest
from tasks.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An empty store."""
    return Store(tmp_path / "store")


@pytest.fixture
def toml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Entry]:
    """Writes $CROSSGRADE_MODELS and returns the entry `mine`."""
    return writer(tmp_path, monkeypatch)


def ratio(entry: Entry, store: Store, part: str = "evaluation") -> float:
    """The metric of the model as it came."""
    split = getattr(entry.splits(store), part)
    pairs = entry.score(run_fp32(entry, split.feeds, store), split.labels)
    assert len(pairs) == len(split.hashes)
    return float(pairs[:, 0].sum() / pairs[:, 1].sum())


def test_an_onnx_file_with_an_npz_is_a_model(toml, tmp_path: Path, store: Store):
    """Three lines of TOML give a scored model whose splits hold every sample once."""
    save_data(tmp_path / "data.npz", save_linear(tmp_path / "m.onnx"))
    entry = toml('[mine]\nonnx = "m.onnx"\ndata = "data.npz"\nmetric = "top1"\n')
    splits = entry.splits(store)
    assert ratio(entry, store) == 1.0
    assert sum(len(part.hashes) for part in (splits.calibration, splits.development, splits.evaluation)) == ROWS
    assert entry.dynamic_axes() == {"x": {0: "batch"}, "logits": {0: "batch"}}
    assert entry.requests(store, 3, 1)[0]["x"].shape == (3, 4)
    assert not entry.spec.has_torch


def test_an_old_opset_is_raised(toml, tmp_path: Path, store: Store):
    """An opset-11 file becomes one that INT8 per channel can be written in."""
    import onnx

    save_data(tmp_path / "data.npz", save_linear(tmp_path / "m.onnx", opset=11))
    entry = toml('[mine]\nonnx = "m.onnx"\ndata = "data.npz"\nmetric = "top1"\n')
    assert onnx.load(entry.onnx(store)).opset_import[0].version == 17
    assert ratio(entry, store) == 1.0


def test_a_fixed_batch_of_one_is_fed_one_by_one(toml, tmp_path: Path, store: Store):
    """A model with a fixed first axis is scored, and refuses a larger batch."""
    save_data(tmp_path / "data.npz", save_linear(tmp_path / "m.onnx", batch=1))
    entry = toml('[mine]\nonnx = "m.onnx"\ndata = "data.npz"\nmetric = "top1"\n')
    assert ratio(entry, store) == 1.0
    with pytest.raises(BadRequest, match="takes a batch of 1, not 4"):
        entry.requests(store, 4, 1)


def test_a_table_of_columns_is_data(toml, tmp_path: Path, store: Store):
    """CSV columns are mapped to an input, and the label column may have any name."""
    import pandas as pd

    x, labels = save_data(tmp_path / "data.npz", save_linear(tmp_path / "m.onnx"))
    frame = pd.DataFrame(x.astype(np.float64), columns=list("abcd")).assign(kind=labels)
    for name in ("data.csv", "data.parquet"):
        frame.to_csv(tmp_path / name, index=False) if name.endswith("csv") else frame.to_parquet(tmp_path / name)
        entry = toml(
            f'[mine]\nonnx = "m.onnx"\ndata = "{name}"\ncolumns = {{ x = ["a", "b", "c", "d"] }}\nlabel = "kind"\nmetric = "top1"\n'
        )
        assert ratio(entry, store) == 1.0


def test_a_torch_function_is_a_model(toml, tmp_path: Path, store: Store):
    """A module beside the TOML file is imported and built; its inputs are named by forward()."""
    (tmp_path / "my_torch_model.py").write_text(
        "import torch\n\n\nclass Net(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.line = torch.nn.Linear(4, 1)\n\n"
        "    def forward(self, x):\n        return torch.sigmoid(self.line(x)).squeeze(1)\n\n\n"
        "def build():\n    torch.manual_seed(0)\n    return Net()\n"
    )
    x = np.random.RandomState(0).randn(ROWS, 4)
    np.savez(tmp_path / "data.npz", x=x, labels=(x[:, 0] > 0).astype(int))
    entry = toml('[mine]\ntorch = "my_torch_model:build"\ndata = "data.npz"\nmetric = "f1"\n')
    assert entry.spec.inputs[0].shape == ("batch", 4)
    assert 0 < ratio(entry, store) < 1
    assert entry.spec.files["state_dict"] == toml((tmp_path / "models.toml").read_text()).spec.files["state_dict"]


def test_a_torch_function_may_return_an_entry(toml, tmp_path: Path):
    """Whoever needs more than a table writes an entry."""
    (tmp_path / "my_entry_module.py").write_text("from model_zoo.silero_vad import ENTRY\n\n\ndef build():\n    return ENTRY\n")
    with pytest.raises(BadRequest, match="give both the same name"):
        toml('[mine]\ntorch = "my_entry_module:build"\n')


def test_a_folder_of_images_is_data(toml, tmp_path: Path, store: Store):
    """Images are resized and normalised; classes are folders in alphabetical order."""
    from PIL import Image

    (tmp_path / "my_image_model.py").write_text(
        "import torch\n\n\nclass Bright(torch.nn.Module):\n    def forward(self, image):\n"
        "        level = image.mean((1, 2, 3))\n        return torch.stack([-level, level], 1)\n\n\ndef build():\n    return Bright()\n"
    )
    random = np.random.RandomState(0)
    for name, low in (("dark", 0), ("light", 150)):
        (tmp_path / "images" / name).mkdir(parents=True)
        for number in range(40):
            Image.fromarray(random.randint(low, low + 100, (20, 30, 3), np.uint8)).save(tmp_path / "images" / name / f"{number}.png")
    entry = toml(
        '[mine]\ntorch = "my_image_model:build"\ndata = "images"\nmetric = "top1"\n'
        "size = [8, 8]\nmean = [0.5, 0.5, 0.5]\nstd = [0.5, 0.5, 0.5]\n"
    )
    assert ratio(entry, store) == 1.0


def save_bert(folder: Path, **extra: object) -> None:
    """A tiny text classifier with its tokenizer, as save_pretrained writes it."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

    words = ["[PAD]", "[UNK]", "good", "bad", "film", "book", "very", "not", *(f"w{number}" for number in range(40))]
    tokenizer = Tokenizer(models.WordLevel({word: row for row, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]").save_pretrained(folder)
    config = BertConfig(
        len(words), 16, 1, 2, 32, max_position_embeddings=32, label2id={"bad": 0, "good": 1}, id2label={0: "bad", 1: "good"}
    )
    BertForSequenceClassification(config).save_pretrained(folder)
    if extra:
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | extra))


def save_reviews(path: Path, label: bool = True) -> None:
    """Different short texts, labelled with names of classes."""
    lines = [f"very good film w{n % 40} w{n // 40},good\nnot bad book w{n % 40} w{n // 40},bad" for n in range(50)]
    text = "\n".join(["sentence,label", *lines])
    path.write_text(text if label else "\n".join(line.rsplit(",", 1)[0] for line in text.split("\n")))


def test_a_hugging_face_folder_is_a_model(toml, tmp_path: Path, store: Store):
    """A folder works without a network; labels may be the model's own names of classes."""
    save_bert(tmp_path / "bert")
    save_reviews(tmp_path / "reviews.csv")
    entry = toml('[mine]\nhf = "bert"\ntask = "text-classification"\ndata = "reviews.csv"\ntext = "sentence"\nmetric = "top1"\n')
    assert 0 <= ratio(entry, store) <= 1
    assert "model.safetensors" in entry.spec.files
    assert entry.dynamic_axes()["input_ids"] == {0: "batch", 1: "tokens"}


def test_a_hugging_face_image_classifier_brings_its_own_preprocessing(toml, tmp_path: Path, store: Store):
    """Size, mean and std come from the folder; classes are matched by name, not by alphabet."""
    from PIL import Image
    from transformers import ViTConfig, ViTForImageClassification

    names = {"label2id": {"light": 0, "dark": 1}, "id2label": {0: "light", 1: "dark"}}
    config = ViTConfig(8, 1, 2, 16, image_size=16, patch_size=8, **names)
    ViTForImageClassification(config).save_pretrained(tmp_path / "vit")
    own = {"size": {"height": 16, "width": 16}, "image_mean": [0.5] * 3, "image_std": [0.25] * 3}
    (tmp_path / "vit" / "preprocessor_config.json").write_text(json.dumps(own))
    for name in ("dark", "light"):
        (tmp_path / "images" / name).mkdir(parents=True)
        for level in range(40):
            Image.new("RGB", (30, 20), (level + 200 * (name == "light"),) * 3).save(tmp_path / "images" / name / f"{level}.png")
    entry = toml('[mine]\nhf = "vit"\ntask = "image-classification"\ndata = "images"\nmetric = "top1"\n')
    split = entry.splits(store).evaluation
    darkest = np.array([image.min() for feed in split.feeds for image in feed["pixel_values"]]) < 0
    assert darkest.tolist() == (split.labels["labels"] == 1).tolist()
    assert split.feeds[0]["pixel_values"].min() >= -2
    assert 0 <= ratio(entry, store) <= 1


def test_without_labels_there_is_only_likeness(toml, tmp_path: Path, store: Store):
    """FP32 agrees with itself, and the metric says that it can never approve."""
    save_bert(tmp_path / "bert")
    save_reviews(tmp_path / "reviews.csv", label=False)
    for task, name in (("text-classification", "agreement"), ("text-embedding", "cosine")):
        entry = toml(f'[mine]\nhf = "bert"\ntask = "{task}"\ndata = "reviews.csv"\ntext = "sentence"\n')
        assert entry.spec.metric.name == name
        assert entry.spec.metric.fidelity
        assert ratio(entry, store) == pytest.approx(1.0)


def test_pickled_weights_are_refused(toml, tmp_path: Path):
    """A folder with only pytorch_model.bin is refused before anything reads it."""
    save_bert(tmp_path / "bert")
    (tmp_path / "bert" / "model.safetensors").rename(tmp_path / "bert" / "pytorch_model.bin")
    save_reviews(tmp_path / "reviews.csv")
    with pytest.raises(BadModel, match="only pickled weights"):
        toml('[mine]\nhf = "bert"\ntask = "text-classification"\ndata = "reviews.csv"\ntext = "sentence"\nmetric = "top1"\n')


def test_code_of_a_model_is_never_run(toml, tmp_path: Path):
    """auto_map means remote code, which is refused."""
    save_bert(tmp_path / "bert", auto_map={"AutoModel": "evil.Model"})
    save_reviews(tmp_path / "reviews.csv")
    with pytest.raises(BadModel, match="needs code of its own"):
        toml('[mine]\nhf = "bert"\ntask = "text-classification"\ndata = "reviews.csv"\ntext = "sentence"\nmetric = "top1"\n')


def test_a_hub_id_needs_a_revision(toml, tmp_path: Path):
    """A branch moves, so an id without a commit is refused before the network is asked."""
    save_reviews(tmp_path / "reviews.csv")
    with pytest.raises(BadRequest, match="has no revision"):
        toml('[mine]\nhf = "org/name"\ntask = "text-classification"\ndata = "reviews.csv"\nmetric = "top1"\n')


def test_duplicates_are_dropped_and_counted(toml, tmp_path: Path, store: Store, caplog: pytest.LogCaptureFixture):
    """The same sample twice is kept once, so it cannot be in two splits."""
    x, labels = save_data(tmp_path / "data.npz", save_linear(tmp_path / "m.onnx"))
    np.savez(tmp_path / "data.npz", x=np.concatenate([x, x[:50]]), labels=np.concatenate([labels, labels[:50]]))
    with caplog.at_level(logging.INFO, "crossgrade"):
        splits = toml('[mine]\nonnx = "m.onnx"\ndata = "data.npz"\nmetric = "top1"\n').splits(store)
    assert sum(len(part.hashes) for part in (splits.calibration, splits.development, splits.evaluation)) == ROWS
    assert "50 duplicate samples dropped" in caplog.text


def test_a_sample_keeps_its_split_when_others_come(toml, tmp_path: Path, store: Store):
    """More data never move a calibration sample into evaluation."""
    x, labels = save_data(tmp_path / "data.npz", save_linear(tmp_path / "m.onnx"))
    text = '[mine]\nonnx = "m.onnx"\ndata = "data.npz"\nmetric = "top1"\n'
    before = set(toml(text).splits(store).calibration.hashes)
    np.savez(tmp_path / "data.npz", x=np.concatenate([x + 1, x]), labels=np.concatenate([labels, labels]))
    assert before <= set(toml(text).splits(store).calibration.hashes)
