"""``python -m tests.fuzz``: fuzz all readers for some minutes, and print counts."""

from __future__ import annotations

import argparse
import sys
import time

from tests.fuzz.fuzzing import fuzz
from tests.fuzz.readers import READERS

_ROUND_S = 10.0


def main() -> int:
    """Fuzz until time is over; return 1 where a reader failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="part of a reader's name")
    asked = parser.parse_args()
    readers = [reader for name, reader in READERS.items() if asked.only in name]
    counts = dict.fromkeys((reader.name for reader in readers), 0)
    failed: list[str] = []
    number, until_s = asked.seed, time.monotonic() + 60.0 * asked.minutes
    round_s = min(_ROUND_S, 60.0 * asked.minutes / max(1, len(readers)))
    while readers and time.monotonic() < until_s:
        for reader in list(readers):
            try:
                counts[reader.name] += fuzz(
                    reader, examples=100_000, number=number, for_s=round_s
                )
            except AssertionError as error:
                failed.append(reader.name)
                readers.remove(reader)
                sys.stdout.write(f"FAILED, seed {number}: {error}\n")
            sys.stdout.write(f"{counts[reader.name]:>10,}  {reader.name}\n")
            sys.stdout.flush()
        number += 1
    total = sum(counts.values())
    sys.stdout.write(f"{total:>10,}  in all; failed: {', '.join(failed) or 'none'}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
