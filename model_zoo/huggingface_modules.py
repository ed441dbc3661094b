"""Hugging Face models of a local folder, wrapped so that they give one tensor."""

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AutoModel, AutoModelForImageClassification, AutoModelForSequenceClassification


class MeanPooled(nn.Module):
    """(batch, tokens) ids and mask -> (batch, width) embeddings of length 1."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Mean of the last hidden states over the tokens that are not padding."""
        states = self.body(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        weights = attention_mask.unsqueeze(-1).to(states.dtype)
        return functional.normalize((states * weights).sum(1) / weights.sum(1).clamp(min=1e-9), dim=-1)


def encoder(folder: Path) -> nn.Module:
    """The encoder of `folder` in eval mode; reads safetensors only and never the network."""
    body = AutoModel.from_pretrained(
        folder, attn_implementation="sdpa", dtype=torch.float32, local_files_only=True, use_safetensors=True, trust_remote_code=False
    )
    return MeanPooled(body).eval()


class Logits(nn.Module):
    """A classifier that gives its logits alone."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body


class TextLogits(Logits):
    """(batch, tokens) ids and mask -> (batch, classes)."""

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Logits per class."""
        return self.body(input_ids=input_ids, attention_mask=attention_mask).logits


class ImageLogits(Logits):
    """(batch, channels, height, width) -> (batch, classes)."""

    def forward(self, pixel_values: Tensor) -> Tensor:
        """Logits per class."""
        return self.body(pixel_values=pixel_values).logits


def classifier(folder: Path, task: str) -> nn.Module:
    """The text or image classifier of `folder` in eval mode; reads safetensors only and never the network."""
    auto, wrapper = (
        (AutoModelForImageClassification, ImageLogits) if task.startswith("image") else (AutoModelForSequenceClassification, TextLogits)
    )
    body = auto.from_pretrained(folder, dtype=torch.float32, local_files_only=True, use_safetensors=True, trust_remote_code=False)
    return wrapper(body).eval()
