"""A small residual network for digits, and how it is trained."""

import logging

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

log = logging.getLogger("crossgrade")
MEAN, STD = 0.1307, 0.3081  # of MNIST's training pixels


def convolution(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    """3x3 convolution with batch normalisation."""
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs))


class Residual(nn.Module):
    """Two convolutions around a shortcut."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.second = convolution(channels, channels), convolution(channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        """Keeps the shape."""
        return functional.relu(x + self.second(functional.relu(self.first(x))))


class DigitNet(nn.Module):
    """(batch, 1, 28, 28) in [0, 1] -> (batch, 10) logits."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.body = nn.Sequential(
            convolution(1, width, stride=2),
            nn.ReLU(),
            Residual(width),
            convolution(width, 2 * width, stride=2),
            nn.ReLU(),
            Residual(2 * width),
            convolution(2 * width, 4 * width),
            nn.ReLU(),
            Residual(4 * width),
        )
        self.head = nn.Linear(4 * width, 10)

    def forward(self, image: Tensor) -> Tensor:
        """Logits per digit."""
        return self.head(self.body((image - MEAN) / STD).mean((2, 3)))


def bent(images: Tensor, random: torch.Generator) -> Tensor:
    """Images rotated, scaled, moved and sheared by a little."""
    count = len(images)
    angle, scale, shear = ((torch.rand(count, generator=random) - 0.5) * spread for spread in (0.5, 0.3, 0.4))
    move = (torch.rand(count, 2, generator=random) - 0.5) * 0.3
    scale = 1 + scale
    first = torch.stack([angle.cos() * scale, (shear - angle.sin()) * scale, move[:, 0]], 1)
    second = torch.stack([angle.sin() * scale, angle.cos() * scale, move[:, 1]], 1)
    grid = functional.affine_grid(torch.stack([first, second], 1), list(images.shape), align_corners=False)
    return functional.grid_sample(images, grid, align_corners=False)


def train(images: np.ndarray, digits: np.ndarray, epochs: int = 4, batch: int = 64, rate: float = 4e-3) -> nn.Module:
    """A trained DigitNet in eval mode; seeded, about 40 s on two cores."""
    x, y = torch.from_numpy(images), torch.from_numpy(digits)
    random = torch.Generator().manual_seed(0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = DigitNet()
    optimizer = torch.optim.AdamW(net.parameters(), rate, weight_decay=0.01)
    steps = -(-len(x) // batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=epochs * steps, pct_start=0.2)
    net.train()
    for epoch in range(epochs):
        for rows in torch.randperm(len(x), generator=random).split(batch):
            loss = functional.cross_entropy(net(bent(x[rows], random)), y[rows], label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        log.info("mnist-cnn: trained epoch %d of %d, loss %.3f", epoch + 1, epochs, loss.item())
    return net.eval()
