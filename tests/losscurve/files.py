"""A small file of a curve, and ways to spoil it."""

from pathlib import Path

CURVE = """\
# model: linear regression, 2 to 1
# data_set: made up for tests
# epoch_samples: 8
# batch_size: 4
# optimizer: SGD
# learning_rate: 0.1
# seed: 1
# loss: squared_error, lower is better
# validation: accuracy, higher is better
# made_with: an editor
# licence: Apache-2.0
samples,step,epoch,loss,accuracy
4,1,0.5,1.25,
8,2,1,inf,0.5
12,3,1.5,nan,
16,4,2,nan,nan
"""

STEP_TIMES = """\
# Step time
name,cpu_percent,step_ms,low_ms,high_ms,used_percent,steps,method
small,25,8,7,9,25.1,100,cgroup v1
small,100,2,2,2.5,99,400,cgroup v1
"""


def replaced(text: str, old: str, new: str) -> str:
    """Return *text* with *old*, which is in it once, as *new*."""
    assert text.count(old) == 1, old
    return text.replace(old, new)


def folder(at: Path, *, curve: str = CURVE, step_times: str | None = None) -> Path:
    """Write a folder with one curve, ``small``, and perhaps a table."""
    (at / "curves").mkdir(parents=True)
    (at / "curves" / "small.csv").write_text(curve, "utf-8")
    if step_times is not None:
        (at / "step_times.csv").write_text(step_times, "utf-8")
    return at
