"""The environment that Slurm's commands get."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm.runner import scrubbed


@pytest.mark.parametrize(
    "name",
    [
        *("SQUEUE_FORMAT", "SQUEUE_FORMAT2", "SINFO_FORMAT", "SLURM_TIME_FORMAT"),
        *("SLURM_CLUSTERS", "SLURM_JOB_ID", "SBATCH_PARTITION", "SCANCEL_SIGNAL"),
        *("SLURM_BITSTR_LEN", "SLURM_MEM_PER_NODE", "PMIX_RANK"),
    ],
)
def test_what_changes_slurms_answers_is_taken_out(name: str) -> None:
    assert name not in scrubbed({name: "x"})


@pytest.mark.parametrize(
    "name", ["PATH", "HOME", "SLURM_CONF", "SLURM_JWT", "MYSLURM_X"]
)
def test_what_slurm_needs_to_be_reached_stays(name: str) -> None:
    assert scrubbed({name: "x"})[name] == "x"


@given(st.dictionaries(st.text(max_size=9), st.text(max_size=9), max_size=5))
def test_language_and_time_zone_are_fixed_whatever_was_set(
    environ: dict[str, str],
) -> None:
    once = scrubbed(environ | {"LC_ALL": "de_DE.UTF-8", "TZ": "Asia/Tokyo"})

    assert (once["LC_ALL"], once["TZ"]) == ("C", "UTC")
    assert scrubbed(once) == once
