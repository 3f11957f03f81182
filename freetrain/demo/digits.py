"""Digits drawn by hand on 5 × 7 dots, moved, dimmed and blurred by noise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

SIDE = 9
PIXELS = SIDE * SIDE
CLASSES = 10
_NOISE = 0.2
_ROWS, _COLUMNS = 7, 5
_GLYPHS = """
.###. ..#.. .###. .###. ...#. ##### .###. ##### .###. .###.
#...# .##.. #...# #...# ..##. #.... #.... ....# #...# #...#
#..## ..#.. ....# ....# .#.#. ####. ####. ...#. #...# #...#
#.#.# ..#.. ..##. ..##. #..#. ....# #...# ..#.. .###. .####
##..# ..#.. .#... ....# ##### ....# #...# ..#.. #...# ....#
#...# ..#.. #.... #...# ...#. #...# #...# ..#.. #...# ....#
.###. .###. ##### .###. ...#. .###. .###. ..#.. .###. .###.
"""


def draw(count: int, *, seed: int) -> tuple[Array, NDArray[np.int64]]:
    """Return *count* images, one a row of ``PIXELS`` numbers, and their digits.

    The same ones for the same seed.
    """
    random = np.random.default_rng(seed)
    labels = random.integers(CLASSES, size=count)
    downs = random.integers(SIDE - _ROWS + 1, size=count)
    rights = random.integers(SIDE - _COLUMNS + 1, size=count)
    images = np.zeros((count, SIDE, SIDE))
    glyphs = _glyphs()
    for image, label, down, right in zip(images, labels, downs, rights, strict=True):
        image[down : down + _ROWS, right : right + _COLUMNS] = glyphs[label]
    images *= random.uniform(0.6, 1.0, size=(count, 1, 1))
    images += random.normal(scale=_NOISE, size=images.shape)
    return images.reshape(count, PIXELS), labels


def _glyphs() -> Array:
    rows = [line.split() for line in _GLYPHS.split("\n") if line]
    dots = [[[dot == "#" for dot in row[k]] for row in rows] for k in range(CLASSES)]
    return np.array(dots, dtype=np.float64)
