"""Lines of text, painted: labels that are right by construction."""

import random
import re
from pathlib import Path

import numpy as np

from model_zoo.files import package_folder

HEIGHT, WIDTH = 48, 320
AMBIGUOUS = re.compile(r"[_\"'`|]")  # CTC merges repeats like __, and quotes look alike when blurred


def lines() -> list[str]:
    """Short ASCII lines of the Python language reference, in a fixed shuffled order."""
    from pydoc_data.topics import topics

    found = {re.sub(r"\s+", " ", line).strip() for text in topics.values() for line in text.splitlines()}
    plain = sorted(
        line for line in found if 8 <= len(line) <= 32 and line.isascii() and line.isprintable() and re.search("[A-Za-z]{3}", line)
    )
    plain = [line for line in plain if not AMBIGUOUS.search(line)]
    random.Random(0).shuffle(plain)  # noqa: S311
    return plain


def fonts() -> list[Path]:
    """The DejaVu fonts that matplotlib ships."""
    folder = package_folder("matplotlib") / "mpl-data" / "fonts" / "ttf"
    return sorted(path for path in folder.glob("DejaVu*.ttf") if "Display" not in path.name)


def paint(text: str, seed: int) -> tuple[np.ndarray, int]:
    """uint8 (48, 320) grey pixels of a rotated, blurred, noisy line, and how many columns it fills; seeded."""
    from PIL import Image, ImageDraw, ImageFilter, ImageFont

    choose = random.Random(seed)  # noqa: S311
    font = ImageFont.truetype(choose.choice(fonts()), choose.choice([14, 16, 18, 20, 24, 28]))
    left, top, right, bottom = font.getbbox(text)
    image = Image.new("L", (int(right - left) + 12, int(bottom - top) + 10), choose.randint(200, 255))
    ImageDraw.Draw(image).text((6 - left, 5 - top), text, font=font, fill=choose.randint(0, 110))
    image = image.rotate(choose.uniform(-1.5, 1.5), resample=Image.Resampling.BILINEAR, fillcolor=230)
    image = image.filter(ImageFilter.GaussianBlur(choose.uniform(0, 1.1)))
    width = min(max(8, int(image.width * HEIGHT / image.height)), WIDTH)
    pixels = np.asarray(image.resize((width, HEIGHT), Image.Resampling.BILINEAR), np.float64)
    pixels = pixels + np.random.RandomState(seed).randn(*pixels.shape) * choose.uniform(0, 22)
    canvas = np.zeros((HEIGHT, WIDTH), np.uint8)
    canvas[:, :width] = np.clip(np.round(pixels), 0, 255)
    return canvas, width
