"""A training program as it is usually written: it knows nothing of FreeTrain.

It saves every few steps to a folder, and goes on from the newest file there. All
ranks of PyTorch's variables do the same, and the first one saves.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=3_000)
    parser.add_argument("--save-every", type=int, default=60)
    parser.add_argument("--checkpoints", default="saved")
    parser.add_argument("--hurry", type=Path, default=Path("hurry"))
    given = parser.parse_args()
    folder = Path(given.checkpoints)
    folder.mkdir(exist_ok=True)
    saved = sorted(folder.glob("step-*.json"))
    last = json.loads(saved[-1].read_text()) if saved else {"step": 0, "value": 0.5}
    step, value = last["step"], last["value"]
    sys.stdout.write(f"rank {rank()} begins at step {step}\n")
    while step < given.steps:
        if not given.hurry.exists():
            time.sleep(0.1)
        value = 3.7 * value * (1 - value)  # any step done twice or left out is seen
        step += 1
        if step % given.save_every == 0 and rank() == 0:
            save(folder / f"step-{step:06d}.json", {"step": step, "value": value})
    if rank() == 0:
        save(Path("result.json"), {"step": step, "value": value})


def rank() -> int:
    return int(os.environ.get("RANK", "0"))


def save(path: Path, content: dict[str, float]) -> None:
    half = path.with_suffix(".half")
    half.write_text(json.dumps(content))
    half.replace(path)


if __name__ == "__main__":
    main()
