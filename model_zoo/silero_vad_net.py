"""The network of Silero VAD as a plain torch module, so that every runtime can be given the same model.

The published .safetensors and .onnx files hold two different trainings of it: outputs differ, their F1 hardly (0.984 and 0.987 on
whole clips). With the .onnx file's weights in it, this module computes what that file computes (tests/test_zoo.py).
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

NAMES = {
    "stft_conv": "stft",
    "lstm_cell": "memory",
    "final_conv": "head",
    "conv1": "conv1",
    "conv2": "conv2",
    "conv3": "conv3",
    "conv4": "conv4",
}


class SileroNet(nn.Module):
    """STFT as a convolution, four convolutions, an LSTM over the frames, one probability per frame after the lead-in."""

    def __init__(self, lead_in: int) -> None:
        super().__init__()
        self.lead_in = lead_in
        self.stft = nn.Conv1d(1, 258, 256, 128, bias=False)
        self.conv1 = nn.Conv1d(129, 128, 3, 1, 1)
        self.conv2 = nn.Conv1d(128, 64, 3, 2, 1)
        self.conv3 = nn.Conv1d(64, 64, 3, 2, 1)
        self.conv4 = nn.Conv1d(64, 128, 3, 1, 1)
        self.memory = nn.LSTM(128, 128)
        self.head = nn.Conv1d(128, 1, 1)

    def forward(self, frames: Tensor) -> Tensor:
        """(batch, steps, 576) samples in [-1, 1] -> (batch, steps - lead_in) probabilities."""
        batch, steps, window = frames.shape
        padded = functional.pad(frames.reshape(batch * steps, 1, window), (0, 64), mode="reflect")
        real, imaginary = self.stft(padded).split(129, 1)
        features = torch.sqrt(real * real + imaginary * imaginary)
        for conv in (self.conv1, self.conv2, self.conv3, self.conv4):
            features = functional.relu(conv(features))
        sequence, _ = self.memory(features.reshape(batch, steps, 128).transpose(0, 1))  # one step is left of each frame's time axis
        return torch.sigmoid(self.head(functional.relu(sequence[self.lead_in :].permute(1, 2, 0)))).squeeze(1)


def renamed(published: dict[str, Tensor]) -> dict[str, Tensor]:
    """The published state dict under this module's names."""
    state = {}
    for name, tensor in published.items():
        part, kind = name.split(".")
        state[f"{NAMES[part]}.{kind}_l0" if part == "lstm_cell" else f"{NAMES[part]}.{kind}"] = tensor
    return state
