"""Lowering the precision of an exported model by a recipe. One file per toolkit and method."""

import hashlib
import logging
import time
from collections.abc import Sequence
from importlib import import_module

from model_zoo.facts import Entry, Tensors
from tasks.backends.base import in_words_of, quiet
from tasks.errors import BadModel, Unsupported
from tasks.facts import Artifact, Recipe
from tasks.optional import need, version_of
from tasks.store import Store

CODE = 1  # raise it when what these files write changes: it is part of the cache key
HOW = {
    ("onnxruntime", "static"): "tasks.quantize.ort_static",
    ("onnxruntime", "dynamic"): "tasks.quantize.ort_dynamic",
    ("nncf", "static"): "tasks.quantize.nncf_ptq",
}
TOOLS = {"onnxruntime": ("onnxruntime", "onnx"), "nncf": ("nncf", "openvino")}
log = logging.getLogger("crossgrade")


def quantize(entry: Entry, source: Artifact, recipe: Recipe, store: Store) -> Artifact:
    """The model at the recipe's precision, made once; `source` itself where the recipe changes nothing.

    Raises:
        Unsupported: the recipe makes no sense, changes nothing in this model, or its toolkit failed (in its own words).
        MissingExtra: the toolkit is not installed.
        BadModel: the recipe needs calibration data and the model has none.
    """
    if recipe.method == "none":
        return source
    how = _how(recipe, source)
    feeds = _calibration(entry, recipe, store)
    tools = {name: version_of(name) for name in TOOLS[recipe.toolkit]}
    calibration = digest_of_feeds(feeds)
    chosen = recipe.model_dump(mode="json", exclude={"name", "note", "backends"})
    key = {"source": source.sha256, "recipe": chosen, "calibration": calibration, "tools": tools, "code": CODE}

    def make() -> Artifact:
        started = time.perf_counter_ns()
        with store.scratch() as folder:
            out = folder / "quantized"
            doing = f"quantizing {entry.spec.id} with {recipe.name}"
            with in_words_of(recipe.toolkit, doing), quiet("nncf", "onnxruntime"):
                made = import_module(how).quantize(store.path(source.sha256), recipe, feeds, out)
            sha256, size = store.put_file(out), out.stat().st_size
        seconds = (time.perf_counter_ns() - started) / 1e9
        notes = made.notes | {"size_before_bytes": str(source.size_bytes)}
        notes |= {"calibration": calibration, "calibration_items": str(len(feeds))} if feeds else {}
        log.info("quantized %s with %s in %.1f s: %s", entry.spec.id, recipe.name, seconds, notes["quantized"])
        return Artifact(
            kind="quantized", format=made.format, sha256=sha256, size_bytes=size,
            parent=source.sha256, tools=tools, seconds=seconds, notes=notes,
        )  # fmt: skip

    return store.cached("quantize", key, Artifact, make)


def digest_of_feeds(feeds: Sequence[Tensors]) -> str:
    """sha256 over names, dtypes, shapes and values, in order."""
    digest = hashlib.sha256()
    for feed in feeds:
        for name in sorted(feed):
            digest.update(f"{name} {feed[name].dtype} {feed[name].shape}".encode())
            digest.update(feed[name].tobytes())
    return digest.hexdigest()


def _how(recipe: Recipe, source: Artifact) -> str:
    """The module that carries the recipe out."""
    how = HOW.get((recipe.toolkit, recipe.method))
    if how is None or recipe.precision != "int8":
        able = ", ".join(f"{method} with {toolkit}" for toolkit, method in HOW)
        asked = f"{recipe.precision} by {recipe.method} with {recipe.toolkit}"
        raise Unsupported(f"recipe {recipe.name} asks for {asked}", f"what can be made is int8: {able}")
    if source.format != "onnx":
        raise Unsupported(f"recipe {recipe.name} changes an ONNX graph and the source is {source.format}", "use an ONNX backend, or fp32")
    if (recipe.method == "static") != (recipe.calibration != "none" and recipe.calibration_items > 0):
        raise Unsupported(
            f"recipe {recipe.name} is {recipe.method} with calibration {recipe.calibration}", "static needs it, dynamic has none"
        )
    need(recipe.toolkit, "intel")
    return how


def _calibration(entry: Entry, recipe: Recipe, store: Store) -> list[Tensors]:
    """The first feeds of the calibration split; none where the recipe needs none."""
    if not recipe.calibration_items:
        return []
    feeds = list(entry.splits(store).calibration.feeds[: recipe.calibration_items])
    if not feeds:
        raise BadModel(f"{entry.spec.id} has no calibration data, and recipe {recipe.name} needs it", "give some, or use a dynamic recipe")
    return feeds
