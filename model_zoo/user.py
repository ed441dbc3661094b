"""Models of users: a table in deployments/models.toml, or in the file that $CROSSGRADE_MODELS names, is a model.

    [my-classifier]
    onnx = "my-classifier.onnx"      # or hf = "org/name", or torch = "module:function"
    data = "labelled.npz"            # or .csv, .parquet, or a folder of images
    metric = "top1"

Relative paths start at the TOML file. docs/adding-a-model.md has each kind.
"""

import os
import tomllib
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, TypeAdapter, ValidationError, model_validator

from model_zoo.facts import Entry
from tasks.errors import BadRequest
from tasks.facts import Name, Sha256

MetricName = Literal["top1", "f1", "exact", "mean_absolute_error", "agreement", "cosine"]
Task = Literal["text-classification", "text-embedding", "image-classification"]
Pixels = Annotated[int, Field(ge=1, le=8192)]
SHARED = Path(__file__).resolve().parent.parent / "deployments" / "models.toml"


class ModelTable(BaseModel):
    """One table: where the model comes from, what it is scored on, and how."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    hf: str | None = Field(None, description="Hugging Face id (with `revision`) or folder; safetensors only, no remote code")
    onnx: str | None = Field(None, description="path of an .onnx file")
    torch: str | None = Field(None, description="'module:function' that returns an nn.Module in eval mode, or an Entry")
    revision: str | None = Field(None, pattern=r"^[0-9a-f]{40}$", description="commit of the Hugging Face id")
    sha256: Sha256 | None = Field(None, description="pins the .onnx file or model.safetensors")
    task: Task | None = Field(None, description="for hf")
    title: str = ""
    license: str = "unknown"
    request: str = "1 sample"

    data: str | None = Field(None, description=".npz, .csv, .parquet, or a folder with one folder of images per class")
    data_license: str = "unknown"
    label: str = Field("label", description="column of a .csv or .parquet")
    text: str = Field("text", description="column that a tokenizer reads, for hf text tasks")
    columns: dict[str, str | Annotated[list[str], Field(min_length=1)]] = Field(
        default_factory=dict, description="input name -> the column or columns that make it"
    )
    max_tokens: int = Field(128, ge=1, le=8192)
    size: tuple[Pixels, Pixels] | None = Field(None, description="height and width of images, where the model leaves them open")
    mean: tuple[FiniteFloat, ...] = Field((), description="per channel, subtracted from pixels in [0, 1]")
    std: tuple[Annotated[FiniteFloat, Field(gt=0)], ...] = Field((), description="per channel, divides after `mean`")

    metric: MetricName | None = Field(None, description="without labels: agreement or cosine with FP32, which can never approve")
    output: str | None = Field(None, description="which output is scored; the first by default")
    threshold: FiniteFloat = Field(0.5, description="for f1 of a single probability")
    batch: int = Field(8, ge=1, description="samples per call when scoring")

    @model_validator(mode="after")
    def _makes_sense(self) -> "ModelTable":
        if sum(source is not None for source in (self.hf, self.onnx, self.torch)) != 1:
            raise ValueError("give exactly one of hf, onnx, torch")
        if self.data is None and self.torch is None:
            raise ValueError("data is missing: name an .npz, a .csv, a .parquet or a folder of images")
        if (self.hf is None) != (self.task is None):
            raise ValueError("task belongs to hf: text-classification, text-embedding or image-classification")
        if not {len(self.mean), len(self.std)} <= {0, 1, 3}:
            raise ValueError("mean and std take one number for each channel: 1 or 3")
        return self


def user_tables(taken: Iterable[str]) -> dict[str, tuple[dict[str, Any], Path]]:
    """Every user table by name, with the file it is written in; nothing in it is checked but the name.

    Raises:
        BadRequest: a file is not TOML, a name is not usable, or two models have it.
    """
    places = dict.fromkeys(taken, "the built-in zoo")
    found = {}
    for path in _files():
        for name, table in _read(path).items():
            if name in places:
                raise BadRequest(f"{path} defines the model {name!r}, which {places[name]} has already", "give one of them another name")
            places[name] = str(path)
            found[name] = table, path
    return found


def parse(name: str, table: Mapping[str, Any], path: Path) -> ModelTable:
    """The checked table.

    Raises:
        BadRequest: names the field that is wrong, and the nearest right one.
    """
    try:
        return ModelTable.model_validate(table)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        where = f"{path}: [{name}]"
        if first["type"] == "extra_forbidden":
            near = get_close_matches(field, ModelTable.model_fields, n=1, cutoff=0.5)
            fix = f"did you mean {near[0]!r}?" if near else f"known fields: {', '.join(ModelTable.model_fields)}"
            raise BadRequest(f"{where} has an unknown field {field!r}", fix) from None
        message = first["msg"].removeprefix("Value error, ")
        raise BadRequest(f"{where} {field or 'table'}: {message}", "docs/adding-a-model.md shows each kind") from None


def user_entry(name: str, table: Mapping[str, Any], path: Path) -> Entry:
    """The entry that a table describes.

    Raises:
        BadRequest: the table cannot be understood.
        BadModel: the model or its data are not usable.
    """
    from model_zoo import user_sources

    return user_sources.entry_of(name, parse(name, table, path), path.parent)


def _files() -> list[Path]:
    extra = os.environ.get("CROSSGRADE_MODELS")
    if extra and not os.path.isfile(extra):  # noqa: PTH113 - False, not an error, for a name too long
        raise BadRequest(f"$CROSSGRADE_MODELS names {extra}, which is not a file", "name a TOML file, or unset it")
    files = [SHARED, Path(extra).resolve()] if extra else [SHARED]
    return [path for path in files if path.is_file()]


def _read(path: Path) -> dict[str, dict[str, Any]]:
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadRequest(f"{path} is not TOML: {error}", "correct that line") from None
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise BadRequest(f"{path}: {name!r} stands outside a table", "put it under the name of a model, as in [my-model]")
        try:
            TypeAdapter(Name).validate_python(name)
        except ValidationError:
            raise BadRequest(f"{path}: [{name}] is not a usable name", "use lower-case letters, digits, dots and dashes") from None
    return tables
