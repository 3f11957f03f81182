"""submit, status, cancel, pause and resume, as users call them."""

import json
from pathlib import Path
from typing import Any

import pytest

from freetrain.broker.reasons import TrainerReason
from freetrain.state.files import AgentState, EndingKind, StateDir, newest_assigned
from freetrain.state.tables import TrainerState
from freetrain.tick.status_report import TrainerLine
from tests.cli.commands import JOB, NOW_S, Terminal, at_home, refused, run, run_json
from tests.client.client_states import (
    a_page,
    assign,
    beat,
    end,
    put_page,
    put_state,
)


def test_a_trainer_is_submitted_once(state: StateDir) -> None:
    first = run("submit", "job.toml")
    again = run("submit", "job.toml")

    assert (first.code, again.code) == (0, 0)
    assert first.stdout.startswith("digits: submitted, to begin from the start.\n")
    assert "submitted before with the same job file; it is wanted." in again.stdout
    assert state.trainer("digits").job.exists()


def test_a_dry_run_leaves_nothing(state: StateDir) -> None:
    shown = run_json("submit", "job.toml", "--dry-run")

    assert (shown["began"], shown["is_dry_run"]) == ("new", True)
    assert not state.path.exists()


def with_mpirun(folder: Path) -> dict[str, str]:
    """Return variables with an mpirun on the PATH that is only asked its version."""
    program = folder / "bin" / "mpirun"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 'mpirun (Open MPI) 4.1.4'\n")
    program.chmod(0o755)
    return {"PATH": f"{program.parent}:/usr/bin:/bin", "HOME": str(folder)}


def test_a_dry_run_shows_the_very_commands(tmp_path: Path, state: StateDir) -> None:
    Path("job.toml").write_text(
        JOB.replace('"train.py"', '"a b", "$(reboot)", "\\u001b[2J"')
    )

    shown = run("submit", "job.toml", "--dry-run", environ=with_mpirun(tmp_path))
    record = run_json("submit", "job.toml", "--dry-run", environ={"PATH": "/bin"})

    (lease,) = [x for x in shown.stdout.splitlines() if x.startswith("  sbatch ")]
    (world,) = [x for x in shown.stdout.splitlines() if x.endswith("[2J'")]
    assert "--nice=10000" in lease
    assert str(state.lease_script) in lease
    assert world.startswith(f"  {tmp_path}/bin/mpirun ")
    assert "python3 'a b' '$(reboot)' '\\x1b[2J'" in world
    assert record["would_run"]["sbatch"][0] == "sbatch"
    assert not state.path.exists()


def test_a_dry_run_of_pieces_shows_their_gpus_and_what_chooses_devices_and_network(
    tmp_path: Path, state: StateDir
) -> None:
    network = 'environment = { NCCL_P2P_DISABLE = "1", EDITOR = "vi" }\n'
    nodes = JOB.replace("max = 8", "max = 8\ngpus_per_lease = 2")
    Path("job.toml").write_text(network + nodes + '\n[launch]\nlauncher = "srun"\n')
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}

    shown = run("submit", "job.toml", "--dry-run", environ=environ)
    record = run_json("submit", "job.toml", "--dry-run", environ=environ)

    assert "--gres=gpu:2" in record["would_run"]["sbatch"]
    assert "--exclusive" not in record["would_run"]["sbatch"]
    assert record["would_run"]["environment"] == {"NCCL_P2P_DISABLE": "1"}
    assert "CPUs and memory not named here the part of a node" in shown.stdout
    assert "\nwith NCCL_P2P_DISABLE=1\n" in shown.stdout
    assert not state.path.exists()


@pytest.mark.usefixtures("state")
@pytest.mark.parametrize("launcher", ["srun", "torchrun", "mpirun"])
def test_a_dry_run_shows_the_program_s_container(tmp_path: Path, launcher: str) -> None:
    environ = with_mpirun(tmp_path)
    for place in (tmp_path / "bin" / "apptainer", Path("torch.sif")):
        place.touch(mode=0o755)
    table = 'image = "torch.sif"\nruntime = "apptainer"'
    text = f'{JOB}\n[launch]\nlauncher = "{launcher}"\n[container]\n{table}\n'
    Path("job.toml").write_text(text)

    shown = run("submit", "job.toml", "--dry-run", environ=environ).stdout

    (line,) = [x for x in shown.splitlines() if "apptainer exec " in x]
    started = line.partition("torch.sif ")[2]
    assert started.startswith("torchrun" if launcher == "torchrun" else "python3")
    assert ("\nand in each lease:\n" in shown) == (launcher != "mpirun")


def test_pieces_are_refused_where_the_site_starts_processes_by_node(
    tmp_path: Path, state: StateDir
) -> None:
    nodes = JOB.replace("max = 8", "max = 1\ngpus_per_lease = 2")
    Path("job.toml").write_text(nodes)
    Path("freetrain.toml").write_text(
        f"launch_agent = '{tmp_path}/rsh'\nstate_directory = '{state.path}'"
    )

    line = refused("submit", "job.toml", code=78)

    assert "launch_agent of freetrain.toml starts processes on a node" in line
    assert not state.path.exists()


def test_the_users_environment_is_kept_without_that_of_slurm_and_mpi(
    tmp_path: Path, state: StateDir
) -> None:
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "OMP_PLACES": "cores"}
    outer = {"SLURM_JOB_ID": "1", "PMI_RANK": "0", "OMPI_COMM_WORLD_RANK": "0"}
    tuned = {"OMPI_MCA_btl": "self,tcp"}

    run("submit", "job.toml", environ=environ | outer | tuned)

    kept = json.loads(state.trainer("digits").environment.read_bytes())
    assert kept == environ | tuned


@pytest.mark.parametrize(
    ("changed", "code", "said"),
    [
        ({"python3": "no-such-python"}, 78, '"no-such-python" is not on your PATH'),
        ({"python3": "./train"}, 78, '"./train" is not in '),
        ({'"python3"': '"python3", "--\\u0000"'}, 78, "without NUL"),
        ({"max = 8": "max = 0"}, 78, "[nodes]: max = 0"),
        ({"max = 8": "mxa = 8"}, 78, "Did you mean 'max'"),
        ({"[nodes]": 'directory = "gone"\n[nodes]'}, 78, "there is no directory"),
        ({"digits": "a/b"}, 78, "up to 64 letters"),
        ({"digits": ".."}, 78, "up to 64 letters"),
        ({"digits": "$(reboot)"}, 78, "up to 64 letters"),
    ],
)
def test_a_job_that_cannot_be_is_refused_and_nothing_is_made(
    changed: dict[str, str], code: int, said: str
) -> None:
    text = JOB
    for old, new in changed.items():
        text = text.replace(old, new)
    state = at_home(text)

    line = refused("submit", "job.toml", code=code)

    assert said in line
    assert "Nothing was submitted." in line
    assert not state.path.exists()


def test_what_only_compute_nodes_have_can_be_submitted_unchecked() -> None:
    at_home(JOB.replace("python3", "/opt/only-there/python"))

    assert run("submit", "job.toml", "--unchecked").code == 0


def test_a_taken_name_is_refused_with_advice(digits: StateDir) -> None:
    Path("job.toml").write_text("weight = 2.0\n" + JOB.replace("max = 8", "max = 4"))

    line = refused("submit", "job.toml", code=64)

    assert "differs from its own in weight, [nodes] max. " in line
    assert "`freetrain cancel digits` first" in line
    assert "max = 8" in digits.trainer("digits").job.read_text()


@pytest.mark.parametrize(
    "verb", ["cancel", "pause", "resume", "status", "explain", "curves", "logs"]
)
def test_a_name_that_is_not_there_is_refused_with_the_nearest(
    digits: StateDir, verb: str
) -> None:
    line = refused(verb, "digist", code=64)

    assert "Did you mean 'digits'?" in line
    assert digits.path.exists()


def test_pause_says_what_happens_and_the_world_is_told(digits: StateDir) -> None:
    assign(digits, "digits", 1, nodes=2)

    paused = run("pause", "digits")
    again = run("pause", "digits")
    resumed = run("resume", "digits")

    newest = newest_assigned(digits.trainer("digits"))
    assert paused.stdout == (
        "digits is paused: it commits and leaves 2 nodes now, within seconds; it is "
        "killed after 30 s.\n"
    )
    assert again.stdout == "digits was paused before; it runs nowhere.\n"
    assert resumed.stdout == (
        "digits is wanted again; the next tick looks for nodes for it.\n"
    )
    assert newest is not None
    assert not newest.members


def test_what_makes_no_sense_exits_with_64_but_cancelling_twice_does_not(
    digits: StateDir,
) -> None:
    codes = [run(verb, "digits").code for verb in ("cancel", "cancel", "pause")]

    assert codes == [0, 0, 64]
    assert digits.path.exists()


def test_status_shows_each_trainer_in_eighty_columns(digits: StateDir) -> None:
    name = "n" * 64
    Path("job.toml").write_text(JOB.replace("digits", name))
    run("submit", "job.toml")
    line = TrainerLine(
        name="digits", state="wanted", planned_nodes=5, reason="evil\x1b[2J\nword"
    )
    put_page(digits, a_page(at_s=NOW_S - 12.0, trainers=(line,)))

    shown = run("status")

    lines = shown.stdout.splitlines()
    assert shown.code == 0
    assert max(map(len, lines)) <= 80
    assert lines[2].startswith("digits ")
    assert "0 → 5" in lines[2]
    cells = [line.split()[0] for line in lines[3 : lines.index("")]]
    assert "".join(cells) == name
    assert "digits: evil\\x1b[2J word." in lines
    assert lines[-1] == "Leases: none. Last tick 12 s ago."


def test_what_has_ended_by_itself_has_no_nodes_planned(digits: StateDir) -> None:
    why = str(TrainerReason.AS_PLANNED)
    line = TrainerLine(name="digits", state="wanted", planned_nodes=2, reason=why)
    put_page(digits, a_page(trainers=(line,)))
    assign(digits, "digits", 1, nodes=2)
    end(digits, "digits", 1, EndingKind.FINISHED, ended_s=NOW_S - 30.0)
    assign(digits, "digits", 2, nodes=0, author="u1-0")

    table, named = run("status").stdout, run("status", "digits").stdout
    explained = run("explain", "digits").stdout

    (row,) = (line for line in table.splitlines() if line.startswith("digits"))
    assert row.split()[:4] == ["digits", "finished", "0", "-"]
    assert row.split()[-2:] == ["30", "s"]
    assert "ended          finished 0 s after it was submitted, in gen" in named
    assert f"what it printed: {digits.trainer('digits').logs}" in named
    assert "digits is finished, for 30 s now." in explained
    assert "planned" not in explained


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"reason": TrainerReason.AS_PLANNED}, ""),
        ({"reason": "it waits", "brake": "paused"}, "it waits (paused)."),
        ({"reason": "it waits", "problem": "its folder is gone"}, "its folder is gone"),
    ],
)
def test_status_has_the_last_ticks_reason_unless_all_goes_as_planned(
    digits: StateDir, fields: dict[str, Any], reason: str
) -> None:
    line = TrainerLine(name="digits", state="wanted", **fields)
    put_page(digits, a_page(trainers=(line,)))

    (trainer,) = run_json("status")["trainers"]

    assert trainer["reason"] == reason


def test_status_of_one_trainer_shows_its_nodes(digits: StateDir) -> None:
    assign(digits, "digits", 1, nodes=2)

    shown, record = run("status", "digits").stdout, run_json("status", "digits")

    assert "generation 1   n1, n2" in shown
    assert str(digits.trainer("digits").run.path) in shown
    (trainer,) = record["trainers"]
    assert record["is_tick_missing"]
    assert (trainer["name"], trainer["doing"]) == ("digits", "starting")
    assert (trainer["nodes"], trainer["node_names"]) == (2, ["n1", "n2"])


def test_of_a_failure_it_is_told_where_to_look(digits: StateDir) -> None:
    assert "freetrain logs" not in run("status").stdout

    put_state(digits, "digits", TrainerState.FAILED)

    shown = run("status").stdout
    assert "digits: `freetrain logs digits` shows why.\n" in shown


def test_status_says_what_makes_steps_seen_while_none_is(state: StateDir) -> None:
    Path("job.toml").write_text(f"elastic = false\n{JOB}{CSV.format('step')}")
    run("submit", "job.toml")
    head = assign(state, "digits", 1, nodes=2).members[0].key
    hint = "`freetrain curves --try JOBFILE` shows what is found"
    line = TrainerLine(name="digits", state="wanted", unseen=hint)
    put_page(state, a_page(trainers=(line,)))

    starting = run("status").stdout
    beat(state, head, AgentState.TRAINING, generation=1)
    training = run("status").stdout
    Path("m.csv").write_text("s\n1\n")
    seen = run("status").stdout

    assert [hint in said for said in (starting, training, seen)] == [False, True, False]


def test_watching_ends_quietly_when_interrupted(digits: StateDir) -> None:
    waited = []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 3:
            raise KeyboardInterrupt

    ran = run("status", "--watch", stdout=Terminal(), sleep=sleep)

    assert (ran.code, ran.stderr, waited) == (0, "", [2.0] * 3)
    assert ran.stdout.count("digits") >= 3
    assert digits.path.exists()


@pytest.mark.usefixtures("digits")
def test_in_a_pipe_watching_shows_it_once() -> None:
    ran = run("status", "--watch")

    assert (ran.code, ran.stdout.count("digits")) == (0, 1)


@pytest.mark.parametrize("words", [("status",), ("cancel", "a"), ("resume", "a")])
def test_without_a_state_it_is_said_what_to_do_and_none_is_made(
    words: tuple[str, ...],
) -> None:
    state = at_home()

    assert "Submit a trainer first" in refused(*words, code=66)
    assert not state.path.exists()


CSV = '[progress]\nformat = "csv"\nfile = "m.csv"\nfields = {{ {} = "s" }}\n'


def counting(work: str, field: str) -> str:
    return f"elastic = false\n{JOB}[work]\n{work}\n{CSV.format(field)}"


@pytest.mark.parametrize(
    ("job", "remark"),
    [
        (counting("samples = 9", "step"), "[work] samples ends nothing"),
        (counting("samples = 9", "samples"), ""),
        (counting("epochs = 9", "step"), "[work] epochs ends nothing"),
        (counting("epochs = 9", "epoch"), ""),
        (counting('time_limit = "1h"', "step"), ""),
        (f"deadline = 2020-01-01T00:00:00Z\n{JOB}", "the deadline 2020-01-01T"),
        (f"deadline = 2020-01-01T01:00:00+01:00\n{JOB}", "the deadline 2020-01-01T"),
        (f"deadline = 2999-01-01T00:00:00Z\n{JOB}", ""),
        (f'deadline = "1s"\n{JOB}', ""),
    ],
)
def test_work_that_is_not_reported_and_a_past_deadline_are_remarked_and_not_refused(
    job: str, remark: str
) -> None:
    at_home(job)

    shown = run_json("submit", "job.toml")

    assert shown["began"] == "new"
    about = [r for r in shown["remarks"] if r.startswith(("[work]", "the deadline"))]
    assert [r[: len(remark)] for r in about] == [remark] * bool(remark)
