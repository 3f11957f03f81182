"""Of very many rows a few are kept, evenly, and always the newest."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from freetrain.tick.history import Downsampler, downsampler_from


@given(count=st.integers(0, 300), most=st.integers(2, 20))
def test_what_is_kept_is_even_and_ends_with_the_newest(count: int, most: int) -> None:
    sieve = Downsampler(most)

    for n in range(count):
        sieve.add([float(n)])
        sieve = downsampler_from(json.loads(json.dumps(sieve.to_state())), most=most)

        rows = [int(row[0]) for row in sieve.rows]
        *even, newest = rows
        assert newest == n
        assert even == list(range(0, n, sieve.every))
        assert len(sieve.kept) <= most
