"""Spoken sentences from espeak-ng, made in a process of its own: the library may be initialised once per process and is known to hang.

Run as `python -m model_zoo.speech OUT.npz < sentences.json`; `speak` does that with a time limit.
"""

import ctypes
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from model_zoo.files import package_folder
from tasks.errors import BadModel

RATE = 16_000
VOICES = ("en-us", "en-gb", "fr-fr", "de", "es", "it")
SYNCHRONOUS = 2  # AUDIO_OUTPUT_SYNCHRONOUS of espeak_Initialize: samples come by callback, no audio device and no thread
SPEED, PITCH = 1, 3  # espeak_PARAMETER
UTF8 = 1


def speak(sentences: list[str], timeout_s: float = 300) -> list[np.ndarray]:
    """One int16 array of 16 kHz mono samples per sentence.

    Raises:
        MissingExtra: espeakng-loader is not installed.
        BadModel: the synthesizer crashed or did not end in time.
    """
    package_folder("espeakng_loader")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "speech.npz"
        command = [sys.executable, "-m", "model_zoo.speech", str(out)]
        here = Path(__file__).resolve().parent.parent
        try:
            done = subprocess.run(
                command, input=json.dumps(sentences).encode(), timeout=timeout_s, capture_output=True, cwd=here, check=False
            )
        except subprocess.TimeoutExpired:
            raise BadModel(f"espeak-ng did not end within {timeout_s:.0f} s", "run again; the library hangs at times") from None
        if done.returncode != 0:
            raise BadModel(f"espeak-ng failed: {done.stderr.decode(errors='replace').strip()[-300:]}", "`make install` brings it anew")
        with np.load(out, allow_pickle=False) as archive:
            return np.split(archive["samples"], archive["ends"][:-1])


def _synthesize(sentences: list[str]) -> list[np.ndarray]:
    """The body of the child. Voice, speed and pitch follow from the position, so the same list gives the same samples."""
    from scipy.signal import resample_poly

    folder = package_folder("espeakng_loader")
    library = ctypes.CDLL(str(folder / "libespeak-ng.so"))
    chunks: list[np.ndarray] = []

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)
    def receive(samples: "ctypes._Pointer[ctypes.c_short]", count: int, _events: object) -> int:
        if samples and count > 0:
            chunks.append(np.ctypeslib.as_array(samples, (count,)).copy())
        return 0

    rate = library.espeak_Initialize(SYNCHRONOUS, 0, str(folder / "espeak-ng-data").encode(), 0)
    library.espeak_SetSynthCallback(receive)
    spoken = []
    for position, sentence in enumerate(sentences):
        library.espeak_SetVoiceByName(VOICES[position % len(VOICES)].encode())
        library.espeak_SetParameter(SPEED, 150 + position * 37 % 60, 0)
        library.espeak_SetParameter(PITCH, 30 + position * 29 % 50, 0)
        chunks.clear()
        text = sentence.encode()
        library.espeak_Synth(text, len(text) + 1, 0, 0, 0, UTF8, None, None)
        voice = resample_poly(np.concatenate(chunks).astype(np.float64), RATE, rate)
        spoken.append(np.clip(np.round(voice), -32768, 32767).astype(np.int16))
    return spoken


if __name__ == "__main__":
    result = _synthesize(json.load(sys.stdin))
    np.savez(sys.argv[1], samples=np.concatenate(result), ends=np.cumsum([len(voice) for voice in result]))
