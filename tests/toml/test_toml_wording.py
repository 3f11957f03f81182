"""How messages show what was found."""

from __future__ import annotations

import pytest

from freetrain.text import per_cent


@pytest.mark.parametrize(
    ("share", "form", "said"),
    [
        (0.28, ".0f", "28 %"),
        (0.285, ".1f", "28.5 %"),
        (-0.4, "+.1f", "-40.0 %"),
        (0.0, "+.1f", "+0.0 %"),
    ],
)
def test_per_cent_stands_behind_a_space(share: float, form: str, said: str) -> None:
    assert per_cent(share, form) == said
