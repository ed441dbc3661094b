"""Models from Hugging Face: an id with a revision, or a folder. Only safetensors are loaded, and never code."""

import json
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from model_zoo.facts import Tensors
from model_zoo.user import ModelTable
from model_zoo.user_data import first_line, inside
from model_zoo.user_sources import Source
from tasks.errors import BadModel, BadRequest, Transient
from tasks.facts import TensorSpec
from tasks.store import sha256_of

if TYPE_CHECKING:
    import torch

READ = ("*.json", "*.safetensors", "*.txt", "*.model")
PICKLED = ("*.bin", "*.pt", "*.pth", "*.pkl", "*.ckpt")
TEXT = ("input_ids", "attention_mask")


def source(table: ModelTable, folder: Path) -> tuple[Source, ModelTable]:
    """The source, and the table with the image size, mean and std that the model's own preprocessor has.

    Raises:
        BadRequest: an id without a revision.
        BadModel: no safetensors, code of its own, or files that are not what they should be.
        Transient: the hub cannot be reached.
    """
    local = _folder(table, folder)
    files = _checked_files(local, table)
    config = _json(local / "config.json")
    if "auto_map" in config:
        raise BadModel(f"{table.hf} needs code of its own", "such code is never run: give it as torch = 'module:function' instead")
    common: dict[str, Any] = {"origin": f"{table.hf}@{table.revision}" if table.revision else str(table.hf), "files": files}
    classes = {str(name): int(row) for name, row in (config.get("label2id") or {}).items()}
    load = lambda: module(local, str(table.task))  # noqa: E731
    if table.task == "image-classification":
        ready = _with_preprocessor(table, local, config)
        spec = TensorSpec(
            name="pixel_values", dtype="float32", shape=("batch", config.get("num_channels", 3), *(ready.size or ("height", "width")))
        )
        axes = {"pixel_values": {0: "batch"}, "logits": {0: "batch"}}
        return Source(**common, inputs=(spec,), outputs=("logits",), axes=axes, module=load, classes=classes), ready
    output = "sentence_embedding" if table.task == "text-embedding" else "logits"
    inputs = tuple(TensorSpec(name=name, dtype="int64", shape=("batch", "tokens")) for name in TEXT)
    axes = {**{name: {0: "batch", 1: "tokens"} for name in TEXT}, output: {0: "batch"}}
    tokenize = tokenizer(local, table.max_tokens)
    return Source(**common, inputs=inputs, outputs=(output,), axes=axes, module=load, classes=classes, tokenize=tokenize), table


def module(folder: Path, task: str) -> "torch.nn.Module":
    """The model of a folder in eval mode, giving one tensor; reads safetensors only and never the network."""
    from model_zoo import huggingface_modules as modules

    try:
        return modules.encoder(folder) if task == "text-embedding" else modules.classifier(folder, task)
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        raise BadModel(
            f"transformers cannot load {folder.name} for {task}: {first_line(error)}", "check the task and that the files are complete"
        ) from error


def tokenizer(folder: Path, limit: int) -> Callable[[Sequence[str]], Tensors]:
    """Texts -> padded ids and mask; the tokenizer is read on first use."""

    def tokenize(texts: Sequence[str]) -> Tensors:
        from transformers import AutoTokenizer

        if folder not in loaded:
            loaded[folder] = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        encoded = loaded[folder](list(texts), padding=True, truncation=True, max_length=limit, return_tensors="np")
        return {name: np.asarray(encoded[name], np.int64) for name in TEXT}

    loaded: dict[Path, Any] = {}
    return tokenize


def _folder(table: ModelTable, folder: Path) -> Path:
    name = str(table.hf)
    if name.startswith((".", "/", "~")) or os.path.isdir(folder / name):  # noqa: PTH112 - False, not an error, for a name too long
        return inside(folder, name)
    if not re.fullmatch(r"[\w-][\w.-]*(/[\w-][\w.-]*)?", name):
        raise BadRequest(f"hf = {name!r} is neither a folder nor an id like 'org/name'", "paths start at the folder of the TOML file")
    if table.revision is None:
        raise BadRequest(f"hf = {name!r} has no revision", "add revision = '<40 hexadecimal digits>': a branch moves, a commit does not")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, revision=table.revision, allow_patterns=list(READ)))
    except HFValidationError as error:
        raise BadRequest(f"hf = {name[:80]!r} is no id: {first_line(error)}", "write 'org/name', as the hub spells it") from None
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise Transient(
            f"{name} cannot be downloaded: {first_line(error)}", "check the network, or download the folder and name it"
        ) from error


def _checked_files(folder: Path, table: ModelTable) -> dict[str, str]:
    """sha256 of the weights and the configuration."""
    weights = sorted(folder.glob("*.safetensors"))
    if not weights:
        pickled = sorted(path.name for pattern in PICKLED for path in folder.glob(pattern))
        what = f"only pickled weights ({', '.join(pickled)})" if pickled else "no weights"
        raise BadModel(f"{folder.name} holds {what}", "a pickle can run code: save it again with save_pretrained(safe_serialization=True)")
    files = {path.name: sha256_of(path) for path in [*weights, *sorted(folder.glob("*.json"))]}
    if table.sha256 not in (None, files[weights[0].name]):
        raise BadModel(f"{weights[0].name} has sha256 {files[weights[0].name]}, but {table.sha256} is pinned", "bring the pinned file back")
    return files


def _json(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadModel(f"{path} is missing", "give a complete folder, as save_pretrained writes it") from None
    except ValueError as error:
        raise BadModel(f"{path} is not JSON: {error}", "copy it again") from None


def _with_preprocessor(table: ModelTable, folder: Path, config: dict[str, Any]) -> ModelTable:
    path = folder / "preprocessor_config.json"
    own = _json(path) if path.is_file() else {}
    size = own.get("crop_size") or own.get("size") or config.get("image_size") or {}
    if isinstance(size, int):
        size = {"height": size, "width": size}
    edge = size.get("shortest_edge")
    found = (size.get("height", edge), size.get("width", edge))
    return table.model_copy(
        update={
            "size": table.size or (found if all(found) else None),
            "mean": table.mean or tuple(own.get("image_mean", ())),
            "std": table.std or tuple(own.get("image_std", ())),
        }
    )
