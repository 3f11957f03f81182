"""Running programs as Slurm's: their environment, and small ones on disk."""

import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm.errors import (
    SlurmMissingError,
    SlurmRefusedError,
    SlurmUnavailableError,
    UnreadableOutputError,
)
from slurm.runner import SubprocessRunner, scrubbed


def test_variables_that_change_slurms_answers_are_taken_out() -> None:
    names = (
        *("SQUEUE_FORMAT", "SQUEUE_FORMAT2", "SINFO_FORMAT", "SLURM_TIME_FORMAT"),
        *("SLURM_CLUSTERS", "SLURM_JOB_ID", "SBATCH_PARTITION", "SCANCEL_SIGNAL"),
        *("SLURM_BITSTR_LEN", "SLURM_MEM_PER_NODE", "PMIX_RANK"),
    )

    assert scrubbed(dict.fromkeys(names, "x")).keys() == {"LC_ALL", "TZ"}


def test_the_variables_by_which_slurm_is_reached_stay() -> None:
    needed = ("PATH", "HOME", "SLURM_CONF", "SLURM_JWT", "MYSLURM_X")

    assert scrubbed(dict.fromkeys(needed, "x")).keys() >= set(needed)


@given(st.dictionaries(st.text(max_size=9), st.text(max_size=9), max_size=5))
def test_language_and_time_zone_are_fixed_whatever_was_set(
    environ: dict[str, str],
) -> None:
    once = scrubbed(environ | {"LC_ALL": "de_DE.UTF-8", "TZ": "Asia/Tokyo"})

    assert (once["LC_ALL"], once["TZ"]) == ("C", "UTC")
    assert scrubbed(once) == once


Run = Callable[..., str]
PATH = "/usr/bin:/bin"


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run a shell script as squeue, with arguments."""

    def run(body: str, *arguments: str, timeout_s: float = 60, **limits: int) -> str:
        runner = SubprocessRunner({"PATH": f"{tmp_path}:{PATH}", "ONLY": "x"}, **limits)
        return runner.run([script(tmp_path, body), *arguments], timeout_s=timeout_s)

    return run


def script(folder: Path, body: str) -> str:
    path = folder / "squeue"
    path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    path.chmod(stat.S_IRWXU)
    return str(path)


def test_the_whole_answer_comes_back(run: Run) -> None:
    answer = run("seq 200000; echo 'é a|b  '")

    assert answer.startswith("1\n2\n")
    assert answer.endswith("200000\né a|b  \n")


def test_bytes_that_are_no_utf_8_are_kept(run: Run) -> None:
    answer = run(r"printf 'a\351\377b\n'")

    assert answer.encode("utf-8", "surrogateescape") == b"a\xe9\xffb\n"


@pytest.mark.parametrize(
    "argument", ["$(touch x)", "; touch x", "a b", "'", '"', "\n", "*", ""]
)
def test_arguments_never_meet_a_shell(run: Run, argument: str, tmp_path: Path) -> None:
    assert run("printf '%s' \"$1\"", argument) == argument
    assert not (tmp_path / "x").exists()


def test_the_environment_is_only_what_was_given(run: Run) -> None:
    answer = run("/usr/bin/env")

    names = {line.partition("=")[0] for line in answer.splitlines()}
    assert names <= {"PATH", "ONLY", "PWD", "SHLVL", "_", "OLDPWD"}
    assert "ONLY=x\n" in answer


def test_programs_are_found_on_the_given_path(tmp_path: Path) -> None:
    script(tmp_path, "echo found")

    # subprocess looks a bare name up on the PATH of the environment it gets
    runner = SubprocessRunner({"PATH": f"{tmp_path}:{PATH}"})
    assert runner.run(["squeue"], timeout_s=60) == "found\n"


def test_standard_input_is_empty_whatever_ours_is(tmp_path: Path) -> None:
    code = (
        "import sys; from slurm.runner import SubprocessRunner;"
        "runner = SubprocessRunner({'PATH': '/usr/bin:/bin'});"
        "print(runner.run([sys.argv[1]], timeout_s=60))"
    )

    done = subprocess.run(  # noqa: S603 -- our own interpreter
        [sys.executable, "-c", code, script(tmp_path, "cat; echo end")],
        input="for another program",
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )

    assert done.stdout.strip() == "end"


MISSING = "Slurm was not asked. Try again later; if that does not help, .* SLURM_CONF"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("kill -9 $$", "killed by signal 9"),
        (
            "echo 'Unable to contact slurm controller (x)' >&2; exit 1",
            "Try again later",
        ),
        ("echo 'error: Socket timed out on send' >&2; exit 1", "Try again later"),
        ("echo 'Could not establish a configuration source' >&2; exit 1", MISSING),
    ],
)
def test_a_command_that_could_not_ask_says_when_to_try_again(
    run: Run, body: str, message: str
) -> None:
    with pytest.raises(SlurmUnavailableError, match=message) as caught:
        run(body)
    assert type(caught.value) is SlurmUnavailableError


def test_a_command_that_was_refused_says_why(run: Run) -> None:
    with pytest.raises(SlurmRefusedError, match="exited with 3: error: Invalid part"):
        run("echo part; echo 'error: Invalid partition name' >&2; exit 3")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("echo 's_p_parse_file: no /x' >&2; sleep 60", f"within.*no /x. {MISSING}"),
        ("echo 'slow' >&2; sleep 60", "slow; whether it had an effect is unknown"),
        ("trap '' TERM INT HUP; while :; do sleep 1; done", "did not answer within"),
    ],
)
def test_a_command_that_takes_too_long_is_killed_and_its_words_are_shown(
    run: Run, body: str, message: str
) -> None:
    with pytest.raises(SlurmUnavailableError, match=message):
        run(body, timeout_s=0.5)


def test_a_command_that_cannot_be_started_says_so(run: Run) -> None:
    with pytest.raises(SlurmMissingError, match=r"cannot be started.*PATH"):
        SubprocessRunner({"PATH": PATH}).run(["no-such-command"], timeout_s=60)
    with pytest.raises(SlurmUnavailableError, match="cannot be started"):
        run("echo", "a\0b")


def test_when_time_is_up_the_whole_group_is_gone(run: Run, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    body = f"sleep 600 & echo $! $$ > {pids}.new; mv {pids}.new {pids}; wait"

    with pytest.raises(SlurmUnavailableError, match="did not answer within"):
        run(body, timeout_s=1.0)

    assert all(ends(int(pid)) for pid in pids.read_text().split())


def test_a_child_that_keeps_the_output_open_is_not_waited_for(
    run: Run, tmp_path: Path
) -> None:
    pid = tmp_path / "pid"

    with pytest.raises(SlurmUnavailableError, match="did not answer within"):
        run(f"sleep 600 & echo $! > {pid}; echo part; exit 0", timeout_s=1.0)

    assert ends(int(pid.read_text()))


@pytest.mark.parametrize("stream", ["1", "2"])
def test_an_endless_answer_is_refused(run: Run, stream: str) -> None:
    with pytest.raises(UnreadableOutputError, match="longer than 1000000 bytes"):
        run(f"yes >&{stream}", max_output_bytes=1_000_000)


def ends(pid: int) -> bool:
    """Whether *pid* goes away: a kill of what is not our child takes a moment."""
    for _ in range(1000):
        if is_gone(pid):
            return True
        time.sleep(0.01)
    return False


def is_gone(pid: int) -> bool:
    """Whether no process runs under *pid*: none at all, or a zombie of init's."""
    try:
        os.kill(pid, signal.SIG_DFL)
    except ProcessLookupError:
        return True
    status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    return status.rpartition(")")[2].split()[0] in {"Z", "X"}
