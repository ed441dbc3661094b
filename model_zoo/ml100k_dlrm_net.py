"""A DLRM-style ranking model and how it is trained."""

import logging

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

log = logging.getLogger("crossgrade")
NEGATIVES = 4  # for each watched film


class Dlrm(nn.Module):
    """Five embedding tables, a bottom MLP on dense features, pairwise dot products, a top MLP: one score per row."""

    pairs: Tensor

    def __init__(self, users: int, films: int, jobs: int, dense: int, width: int = 48) -> None:
        super().__init__()
        self.user, self.film, self.job = nn.Embedding(users, width), nn.Embedding(films, width), nn.Embedding(jobs, width)
        self.age, self.gender = nn.Embedding(8, width), nn.Embedding(2, width)
        self.bottom = nn.Sequential(nn.Linear(dense, 128), nn.ReLU(), nn.Linear(128, width))
        self.top = nn.Sequential(nn.Linear(15 + 6 * width, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 1))
        self.bias = nn.Embedding(films, 1)
        for table in (self.user, self.film, self.job, self.age, self.gender):
            nn.init.normal_(table.weight, std=0.05)
        nn.init.zeros_(self.bias.weight)
        row, column = torch.triu_indices(6, 6, 1)
        self.register_buffer("pairs", row * 6 + column)

    def forward(self, user: Tensor, film: Tensor, profile: Tensor, dense: Tensor) -> Tensor:
        """(rows,), (rows,), (rows, 3) age, gender and job, (rows, dense) -> (rows,) scores."""
        tables = [self.user(user), self.film(film), self.age(profile[:, 0]), self.gender(profile[:, 1]), self.job(profile[:, 2])]
        parts = torch.stack([*tables, self.bottom(dense)], 1)
        dots = torch.bmm(parts, parts.transpose(1, 2)).flatten(1)[:, self.pairs]
        return (self.top(torch.cat([dots, parts.flatten(1)], 1)) + self.bias(film)).squeeze(1)


def train(net: Dlrm, users: np.ndarray, films: np.ndarray, profiles: np.ndarray, dense: np.ndarray, epochs: int = 4) -> nn.Module:
    """Fits `net` to what users watched, against films drawn by the root of their popularity; seeded, about 20 s on two cores."""
    random = np.random.RandomState(0)
    root = np.bincount(films, minlength=len(dense)) ** 0.5
    profile_table, dense_table = torch.from_numpy(profiles), torch.from_numpy(dense)
    optimizer = torch.optim.AdamW(_groups(net), 2e-3)
    steps = epochs * -(-len(users) // 1024)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=steps, pct_start=0.2)
    net.train()
    for epoch in range(epochs):
        for rows in np.array_split(random.permutation(len(users)), steps // epochs):
            others = random.choice(len(dense), (len(rows), NEGATIVES), p=root / root.sum())
            film = torch.from_numpy(np.concatenate([films[rows, None], others], 1).reshape(-1))
            user = torch.from_numpy(users[rows].repeat(1 + NEGATIVES))
            watched = (torch.arange(len(film)) % (1 + NEGATIVES) == 0).float()
            loss = functional.binary_cross_entropy_with_logits(net(user, film, profile_table[user], dense_table[film]), watched)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        log.info("ml100k-dlrm: trained epoch %d of %d, loss %.3f", epoch + 1, epochs, loss.item())
    return net.eval()


def _groups(net: Dlrm) -> list[dict[str, object]]:
    """The two large tables overfit, so they decay 500 times as fast."""
    large = [net.user.weight, net.film.weight]
    rest = [parameter for parameter in net.parameters() if all(parameter is not table for table in large)]
    return [{"params": large, "weight_decay": 0.5}, {"params": rest, "weight_decay": 1e-3}]
