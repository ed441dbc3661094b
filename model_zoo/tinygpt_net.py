"""A small causal language model, its corpus, and how it is trained."""

import ast
import hashlib
import logging
import sysconfig
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

log = logging.getLogger("crossgrade")
CONTEXT, VOCABULARY = 128, 1024
SKIPPED = ("site-packages", "test", "tests", "idlelib", "pydoc_data", "lib2to3")


class Block(nn.Module):
    """Attention and a feed-forward layer, each behind an RMS normalisation and around a shortcut."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_feed = nn.RMSNorm(width), nn.RMSNorm(width)
        self.projections, self.attended = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.wide, self.narrow = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Keeps the shape (batch, tokens, width)."""
        batch, tokens, width = x.shape
        parts = self.projections(self.before_attention(x)).view(batch, tokens, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.attended(mixed.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.narrow(functional.gelu(self.wide(self.before_feed(x))))


class TinyGpt(nn.Module):
    """(batch, tokens) ids -> (batch, tokens, 1024) logits of the next token; at most 128 tokens."""

    def __init__(self, width: int = 192, layers: int = 4, heads: int = 6) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(VOCABULARY, width), nn.Embedding(CONTEXT, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.last, self.head = nn.RMSNorm(width), nn.Linear(width, VOCABULARY, bias=False)
        for part in self.modules():
            if isinstance(part, nn.Linear | nn.Embedding):
                nn.init.normal_(part.weight, std=0.02)

    def forward(self, ids: Tensor) -> Tensor:
        """Logits of the token after each token."""
        places = torch.arange(ids.shape[1], device=ids.device)
        return self.head(self.last(self.blocks(self.words(ids) + self.places(places))))


def corpus() -> dict[str, np.ndarray]:
    """Token ids (uint16) of the Python language reference and of this interpreter's docstrings.

    Topics are dealt out whole, by the hash of their title: one eighth is held out for evaluation, another for development, the rest
    and all docstrings are trained on. The vocabulary of 1,024 byte pairs is learned on the training text alone.
    """
    from pydoc_data.topics import topics

    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    texts: dict[str, list[str]] = {"evaluation": [], "development": [], "training": []}
    for title in sorted(topics):
        eighth = hashlib.sha256(title.encode()).digest()[0] % 8
        texts[("evaluation", "development")[eighth] if eighth < 2 else "training"].append(topics[title])
    texts["training"] += sorted(_docstrings())
    joined = {name: "\n\n".join(parts) for name, parts in texts.items()}
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    learner = trainers.BpeTrainer(vocab_size=VOCABULARY, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator([joined["training"]], learner)
    return {name: np.array(tokenizer.encode(text).ids, np.uint16) for name, text in joined.items()}


def _docstrings() -> set[str]:
    library = Path(sysconfig.get_path("stdlib"))
    found = set()
    for path in sorted([*library.glob("*.py"), *library.glob("*/*.py")]):
        if set(path.relative_to(library).parts) & set(SKIPPED):
            continue
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                found.add(ast.get_docstring(node) or "")
    return {text for text in found if len(text) > 80}


def train(tokens: np.ndarray, steps: int = 400, batch: int = 16, rate: float = 3e-3) -> nn.Module:
    """A trained TinyGpt in eval mode; seeded, about 90 s on two cores."""
    text = torch.from_numpy(tokens.astype(np.int64))
    random = torch.Generator().manual_seed(0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = TinyGpt()
    optimizer = torch.optim.AdamW(net.parameters(), rate, betas=(0.9, 0.98), weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps, pct_start=0.15)
    net.train()
    for step in range(1, steps + 1):
        starts = torch.randint(len(text) - CONTEXT - 1, (batch, 1), generator=random)
        window = text[starts + torch.arange(CONTEXT + 1)]
        loss = functional.cross_entropy(net(window[:, :-1]).reshape(-1, VOCABULARY), window[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 50 == 0:
            log.info("tinygpt: trained %d of %d steps, loss %.3f", step, steps, loss.item())
    return net.eval()
