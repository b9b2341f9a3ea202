"""Draw `receipt.png`, the picture that `make demo` reads.

The font is the one Pillow carries, so the picture can be drawn again anywhere:
`python demo/draw_picture.py` and `git diff --stat` shows whether it changed.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

from PIL import Image, ImageDraw, ImageFont

PICTURE = Path(__file__).with_name("receipt.png")
# The detector enlarges a picture whose short side is under 736 and rounds both sides to multiples of 32:
# a picture of this size reaches it pixel for pixel.
SIZE = (736, 896)
PAPER, INK = (250, 248, 243), (38, 36, 40)


class Line(NamedTuple):
    """One line of text: position (x, y) and font size in pixels, angle in degrees counter-clockwise about it.

    `anchor` is Pillow's: which point of the text stands at the position (`lm` left, `mm` centre, `rm` right).
    """

    text: str
    position: tuple[int, int]
    size: int
    anchor: str = "mm"
    angle: float = 0.0


LEFT, CENTRE, RIGHT = 72, 368, 664
# In the order in which the pipeline reports them: from top to bottom, then from left to right.
LINES = (
    Line("Gossamer Cafe", (CENTRE, 90), 60),
    Line("12 Weaver Lane, Leeds", (CENTRE, 180), 34),
    Line("Table 7", (LEFT, 280), 34, "lm"),
    Line("28.02.2026 14:35", (RIGHT, 280), 34, "rm"),
    Line("Flat white", (LEFT, 370), 38, "lm"),
    Line("7.40", (RIGHT, 370), 38, "rm"),
    Line("Lemon cake", (LEFT, 440), 38, "lm"),
    Line("3.85", (RIGHT, 440), 38, "rm"),
    Line("TOTAL", (LEFT, 530), 48, "lm"),
    Line("11.25", (RIGHT, 530), 48, "rm"),
    # Tilted: the detector's box has four free corners, and the crop straightens it.
    Line("Thank you and come again!", (CENTRE, 665), 40, angle=7.0),
    # Upside down: only the direction model can tell, and without it this line is read as nonsense.
    Line("Order number 48316", (CENTRE, 810), 40, angle=180.0),
)


def draw(lines: tuple[Line, ...] = LINES) -> Image.Image:
    """An RGB picture of `SIZE` (width, height) with every line drawn at its position."""
    picture = Image.new("RGB", SIZE, PAPER)
    for line in lines:
        font = ImageFont.load_default(size=line.size)
        mask = Image.new("L", SIZE, 0)
        ImageDraw.Draw(mask).text(line.position, line.text, fill=255, font=font, anchor=line.anchor)
        mask = mask.rotate(line.angle, resample=Image.Resampling.BICUBIC, center=line.position)
        picture.paste(INK, mask=mask)
    return picture


if __name__ == "__main__":
    destination = Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE
    draw().save(destination, optimize=True)
    print(destination)
