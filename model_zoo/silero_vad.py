"""Silero VAD: a 16 kHz voice activity detector with real weights, scored on spoken sentences in noise."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from model_zoo.data import Arrays, cached_arrays, module_source, sample_hash
from model_zoo.facts import Split, Splits, Tensors
from model_zoo.files import package_folder, pinned_file
from tasks.facts import Metric, ModelSpec, TensorSpec
from tasks.optional import version_of
from tasks.store import Store

if TYPE_CHECKING:
    import torch

HOP, WINDOW = 512, 576  # new samples of a frame, and with the 64 before them
FRAMES = 31  # that one request is answered for: 31 * 512 samples are 0.992 s
LEAD_IN = 31  # frames before them that warm the memory up: without them F1 falls from 0.98 to 0.91
SECONDS = 6  # requests of one clip
CLIPS = {"calibration": 24, "development": 72, "evaluation": 192}
SNR_DB = (10, 5, 0, -5)
SPEECH_DB, SILENCE_DB, HANGOVER = -28, -45, 6  # louder is speech; quieter and further than HANGOVER frames from speech is silence
NET = Path(__file__).with_name("silero_vad_net.py")
THRESHOLD = 0.5  # the one that Silero's own tools use

SPEC = ModelSpec(
    id="silero-vad",
    title="Silero VAD",
    task="voice activity detection",
    request="1 s of audio, with the second before it",
    source="silero-vad 6.2.3 on PyPI, silero_vad_16k.safetensors",
    license="MIT",
    data_source="sentences of the Python language reference, spoken by espeak-ng in six voices, with white and brown noise at 10 to -5 dB",
    data_license="text PSF-2.0; espeak-ng is GPL-3.0-or-later, the sound it makes is not",
    files={
        "silero_vad_16k.safetensors": "c59271c284ae9c8335d795d60e0bfdb71aaaceec578d9bd9ffc1b8153c319ea1",
        NET.name: module_source(NET),
    },
    inputs=(TensorSpec(name="frames", dtype="float32", shape=("batch", LEAD_IN + FRAMES, WINDOW)),),
    outputs=("speech",),
    metric=Metric(name="f1", unit="clip"),
    parameters=309_633,
)


class SileroVad:
    """`frames` (batch, 62, 576) in [-1, 1] -> `speech` (batch, 31), the probability that a frame of the last second holds speech.

    A row is one second of audio after one second of lead-in and starts from an empty memory, so rows are independent requests and the
    batch is the only dynamic dimension: torch 2.13 exports an LSTM with a fixed number of steps, whatever it is told.
    """

    spec = SPEC

    def onnx(self, store: Store) -> Path | None:  # noqa: ARG002
        """None: torch is the source."""
        return None

    def torch_module(self, store: Store) -> "torch.nn.Module":  # noqa: ARG002
        """The network rebuilt around the published weights, in eval mode."""
        from safetensors.torch import load_file

        from model_zoo.silero_vad_net import SileroNet, renamed

        path = pinned_file(self.spec, package_folder("silero_vad") / "data" / "silero_vad_16k.safetensors")
        net = SileroNet(LEAD_IN)
        net.load_state_dict(renamed(load_file(path)))
        return net.eval()

    def dynamic_axes(self) -> dict[str, dict[int, str]]:
        """The number of requests."""
        return {"frames": {0: "batch"}, "speech": {0: "batch"}}

    def splits(self, store: Store) -> Splits:
        """24 / 72 / 192 clips of six seconds, each another sentence; one feed is one clip."""
        made = _clips(store)
        return Splits(**{name: _split(made[f"{name}_audio"], made[f"{name}_labels"]) for name in CLIPS})

    def requests(self, store: Store, batch: int, count: int) -> list[Tensors]:
        """Seconds of calibration audio."""
        audio = np.concatenate([seconds(clip) for clip in _clips(store)["calibration_audio"]])
        return [{"frames": audio[np.arange(start, start + batch) % len(audio)]} for start in range(0, batch * count, batch)]

    def score(self, outputs: Sequence[Tensors], labels: Mapping[str, np.ndarray]) -> np.ndarray:
        """F1 over frames: (2 TP, 2 TP + FP + FN) per clip; frames between speech and silence are not counted."""
        said = np.stack([output["speech"].reshape(-1) for output in outputs]) > THRESHOLD
        truth = labels["speech"]
        true_positive = (said & (truth == 1)).sum(1)
        wrong = (said & (truth == 0)).sum(1) + (~said & (truth == 1)).sum(1)
        return np.stack([2 * true_positive, 2 * true_positive + wrong], 1).astype(np.float64)


ENTRY = SileroVad()


def _split(audio: np.ndarray, labels: np.ndarray) -> Split:
    return Split(
        feeds=[{"frames": seconds(clip)} for clip in audio],
        labels={"speech": labels},
        hashes=tuple(sample_hash(clip) for clip in audio),
    )


def seconds(clip: np.ndarray) -> np.ndarray:
    """int16 samples -> float32 (6, 62, 576) in [-1, 1]: each second with the one before it, silence before the first.

    A frame is cut as Silero's own tools cut it: 512 new samples behind the 64 before them.
    """
    padded = np.concatenate([np.zeros(WINDOW - HOP + LEAD_IN * HOP, np.int16), clip])
    frames = np.lib.stride_tricks.sliding_window_view(padded, WINDOW)[::HOP]
    rows = np.arange(SECONDS)[:, None] * FRAMES + np.arange(LEAD_IN + FRAMES)
    return frames[rows].astype(np.float32) / 32768


def sentences() -> list[str]:
    """Plain sentences of the language reference, in a fixed shuffled order."""
    from pydoc_data.topics import topics

    text = [re.sub(r"\s+", " ", topics[name]) for name in sorted(topics)]
    found = {part.strip() for block in text for part in re.split(r"(?<=[.])\s+", block)}
    plain = sorted(part for part in found if 20 < len(part) < 100 and re.fullmatch(r"[A-Z][a-zA-Z ,.]+", part))
    return [plain[position] for position in np.random.RandomState(0).permutation(len(plain))]


def _clips(store: Store) -> Arrays:
    """int16 audio (clips, samples) and int8 labels (clips, frames) of each split: 1 speech, 0 silence, -1 neither."""
    said = sentences()
    key = {
        "model": SPEC.id,
        "text": hashlib.sha256("\n".join(said).encode()).hexdigest(),
        "espeak": version_of("espeakng-loader"),
        "code": [module_source(Path(__file__)), module_source(Path(__file__).with_name("speech.py"))],
    }
    return cached_arrays(store, key, lambda: _make_clips(said))


def _make_clips(said: list[str]) -> Arrays:
    from model_zoo.speech import speak

    voices = speak(said)
    room = SECONDS * FRAMES * HOP
    fitting = [voice for voice in voices if len(voice) < room - 12_000][: sum(CLIPS.values())]
    made = [_noisy(voice, position, room) for position, voice in enumerate(fitting)]
    arrays, start = {}, 0
    for name, count in CLIPS.items():
        part = made[start : start + count]
        arrays[f"{name}_audio"] = np.stack([audio for audio, _ in part])
        arrays[f"{name}_labels"] = np.stack([labels for _, labels in part])
        start += count
    return arrays


def _noisy(voice: np.ndarray, seed: int, room: int) -> tuple[np.ndarray, np.ndarray]:
    """A voice at a random place of a silent clip, labelled while it is clean, then drowned in noise."""
    random = np.random.RandomState(seed)
    clean = np.zeros(room)
    start = random.randint(4_000, room - len(voice) - 4_000)
    clean[start : start + len(voice)] = voice / np.abs(voice).max() * random.uniform(0.2, 0.8)
    labels = _labels(clean)
    noise = random.randn(room)
    if seed % 2:  # brown noise without its drift
        noise = np.cumsum(noise)
        noise -= np.convolve(noise, np.ones(400) / 400, "same")
    loud = np.sqrt(np.mean(clean.reshape(-1, HOP)[labels == 1] ** 2))
    noisy = clean + noise / noise.std() * loud / 10 ** (SNR_DB[seed // 2 % len(SNR_DB)] / 20)
    return np.round(np.clip(noisy, -1, 32767 / 32768) * 32768).astype(np.int16), labels


def _labels(clean: np.ndarray) -> np.ndarray:
    """Labels by energy against the loudest frames: what lies between speech and silence is left out."""
    rms = np.sqrt(np.mean(clean.reshape(-1, HOP) ** 2, 1) + 1e-12)
    level_db = 20 * np.log10(rms / np.percentile(rms[rms > 1e-4], 95))
    speech = level_db > SPEECH_DB
    near = np.convolve(speech, np.ones(2 * HANGOVER + 1), "same") > 0
    return np.where(speech, 1, np.where((level_db < SILENCE_DB) & ~near, 0, -1)).astype(np.int8)
