"""What each launcher runs, before it runs."""

import re
import shlex
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from signal import Signals

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freetrain.config.job import StopSignal
from freetrain.elastic import rank
from freetrain.elastic.contract import read_launch
from freetrain.launch.base import (
    CannotLaunchError,
    Tool,
    WorldPlan,
    launcher_environment,
    launcher_of,
    plan_world,
)
from freetrain.launch.local import plan_spare
from freetrain.launch.mpirun import Flavour, flavour_of
from freetrain.launch.starter import parse_orders
from freetrain.plugins import LAUNCHERS
from tests.launch.launch_records import FOLDER, PACK, job, request

WORLD = str(FOLDER / "worlds" / "0000000003")
MPIRUN = {flavour: Tool("/mpi/bin/mpirun", flavour) for flavour in Flavour}
VERSIONS = {
    Flavour.OPEN_MPI_5: "mpirun (Open MPI) 5.0.11\n",
    Flavour.OPEN_MPI_4: "mpirun.real (Open MPI) 4.1.4\n",
    Flavour.MPICH: "HYDRA build details:\n    Version:  4.0.2\n",
    Flavour.INTEL_MPI: "Intel(R) MPI Library for Linux* OS, Version 2021.9",
}
# Every launcher of the registry, and mpirun of every kind.
EVERY = [
    *((name, VERSIONS[Flavour.OPEN_MPI_5]) for name in LAUNCHERS),
    *(("mpirun", version) for version in VERSIONS.values()),
]


@dataclass(frozen=True)
class Finder:
    """Finds every program, and has each answer with one version."""

    answer: str

    def find(self, name: str, *, advice: str) -> str:
        assert advice
        return f"/tools/{name}"

    def version(self, path: str) -> str:
        assert path.startswith("/tools/")
        return self.answer


def planned(name: str, version: str, *, is_forked: bool = False) -> WorldPlan:
    """Return the plan of any launcher, as the head would make it."""
    launcher = launcher_of(job(name, via=("wrap",)))
    via = {"via": ("wrap",)} if "command" in launcher.keys else {}
    asked = request(job(name, **via), is_forked=is_forked)
    assert not list(launcher.problems(asked.job))
    tool = launcher.find_tool(asked.job, asked.head, Finder(version))
    return launcher.plan(asked, tool)


def file(plan: WorldPlan, name: str) -> str:
    return next(one.content for one in plan.files if one.path.name == name)


@pytest.mark.parametrize(
    ("flavour", "option", "shell"),
    [(Flavour.OPEN_MPI_5, "--prtemca", "ssh"), (Flavour.OPEN_MPI_4, "--mca", "rsh")],
)
def test_open_mpi_reaches_other_leases_by_the_launch_agent(
    flavour: Flavour, option: str, shell: str
) -> None:
    plan = plan_world(request(job(processes_per_node=4)), MPIRUN[flavour])

    expected = (
        f"/mpi/bin/mpirun {option} plm {shell} "
        f"{option} plm_{shell}_agent {WORLD}/agent "
        f"{option} plm_{shell}_no_tree_spawn 1 {option} ras ^slurm "
        f"--leave-session-attached --hostfile {WORLD}/hosts --map-by ppr:4:node "
        "--bind-to none -n 12"
    )
    assert plan.argv == (*expected.split(), *job().command)
    assert file(plan, "hosts") == "n1 slots=4\nn2 slots=4\nn3 slots=4\n"


@pytest.mark.parametrize(
    ("flavour", "words"),
    [
        (Flavour.MPICH, f"-localhost 10.0.0.1 -genvnone -f {WORLD}/hosts"),
        (Flavour.INTEL_MPI, f"-genvnone -machinefile {WORLD}/hosts"),
    ],
)
def test_hydra_passes_no_variables_and_that_of_mpich_is_told_where_the_head_is(
    flavour: Flavour, words: str
) -> None:
    plan = plan_world(request(job(processes_per_node=2)), MPIRUN[flavour])

    expected = (
        f"/mpi/bin/mpirun -launcher ssh -launcher-exec {WORLD}/agent -rmk user "
        f"{words} -n 6"
    )
    assert plan.argv == (*expected.split(), *job().command)
    assert file(plan, "hosts") == "n1:2\nn2:2\nn3:2\n"


def test_what_the_user_says_about_mapping_and_binding_counts() -> None:
    options = ("--map-by", "ppr:2:node:PE=8", "--bind-to", "core")
    plan = plan_world(request(job(options=options)), MPIRUN[Flavour.OPEN_MPI_5])

    assert plan.argv.count("--map-by") == plan.argv.count("--bind-to") == 1
    assert plan.argv[-7:-3] == options


def test_srun_gives_every_rank_what_torch_looks_for() -> None:
    a_job = job("srun", processes_per_node=2)
    plan = plan_world(request(a_job), Tool("srun"))

    nodes = parse_orders(file(plan, "all.json")).commands
    assert plan.argv[-1] == f"{WORLD}/all.json"
    assert [one.argv[:2] for one in nodes] == [
        (f"{WORLD}/agent", node) for node in ("n1", "n2", "n3")
    ]
    ranks = parse_orders(file(plan, "node-2.json")).commands
    assert [one.argv for one in ranks] == [a_job.command] * 2
    assert [f"{name}={value}" for name, value in ranks[1].environment] == [
        *("MASTER_ADDR=10.0.0.1", "MASTER_PORT=20123", "RANK=5", "LOCAL_RANK=1"),
        *("NODE_RANK=2", "GROUP_RANK=2", "WORLD_SIZE=6", "LOCAL_WORLD_SIZE=2"),
    ]


def test_torchrun_meets_at_the_head_and_asks_its_workers_to_stop() -> None:
    a_job = job("torchrun", processes_per_node=4, options=("--tee", "3"))
    plan = plan_world(request(a_job), Tool("/venv/bin/torchrun"))

    orders = parse_orders(file(plan, "node-1.json"))
    expected = (
        "/venv/bin/torchrun --nnodes=3 --node-rank=1 --nproc-per-node=4 "
        "--master-addr=10.0.0.1 --master-port=20123 --max-restarts=0 --tee 3 "
        "--no-python"
    )
    assert orders.commands[0].argv == (*expected.split(), *a_job.command)
    assert (orders.sends, orders.to_children) == ("USR2", True)


@pytest.mark.parametrize(
    ("launcher", "elastic", "note"),
    [
        ("torchrun", True, "It commits, and ends; what torchrun prints of that"),
        ("torchrun", False, "It gets SIGUSR2; what is printed of that"),
        ("srun", True, ""),
    ],
)
def test_a_log_explains_what_torchrun_prints_of_an_end_that_was_asked_for(
    launcher: str, note: str, *, elastic: bool
) -> None:
    plan = plan_world(request(job(launcher, elastic=elastic)), Tool(launcher))

    assert plan.stop_note.startswith(note)
    assert bool(plan.stop_note) == bool(note)


@pytest.mark.parametrize("launcher", ["srun", "torchrun"])
def test_several_leases_of_a_node_are_so_many_nodes_to_the_program(
    launcher: str,
) -> None:
    a_job = job(launcher, processes_per_node=2)
    plan = plan_world(request(a_job, nodes=("n1", "n2", "n1")), Tool(launcher))

    leases = parse_orders(file(plan, "all.json")).commands
    assert [one.argv[1] for one in leases] == ["n1/1", "n2", "n1/2"]
    last = parse_orders(file(plan, "node-2.json")).commands
    if launcher == "torchrun":
        assert {"--nnodes=3", "--node-rank=2", "--nproc-per-node=2"} <= set(
            last[0].argv
        )
    else:
        ranks = [dict(one.environment) for one in last]
        assert [(one["RANK"], one["LOCAL_RANK"]) for one in ranks] == [
            ("4", "0"),
            ("5", "1"),
        ]


def test_a_site_s_own_agent_cannot_tell_leases_of_a_node_apart() -> None:
    asked = request(job("srun"), nodes=("n1", "n1"), launch_agent=Path("/site/rsh"))

    with pytest.raises(CannotLaunchError, match="two of its leases are on node n1"):
        plan_world(asked, Tool("srun"))


def test_a_node_s_command_begins_where_the_job_file_says() -> None:
    plan = plan_world(request(job("srun")), Tool("srun"))

    text = parse_orders(file(plan, "all.json")).commands[0].argv[2]
    assert shlex.split(text)[:4] == ["cd", "/home/ada/a b", "&&", "exec"]


def test_a_custom_command_has_its_placeholders_filled() -> None:
    via = ("mpiexec", "-f", "{hostfile}", "-h={hosts}", "-n{processes}", "{{x}}")
    a_job = job("custom", via=(*via, "{agent}", "{nodes}"), processes_per_node=2)
    plan = plan_world(request(a_job), Tool(""))

    expected = f"mpiexec -f {WORLD}/hosts -h=n1,n2,n3 -n6 {{x}} {WORLD}/agent 3"
    assert plan.argv == (*expected.split(), *a_job.command)
    assert file(plan, "hosts") == "n1\nn2\nn3\n"


@pytest.mark.parametrize(("launcher", "version"), EVERY)
def test_every_launcher_runs_the_program_as_it_is_and_appends_to_one_log(
    launcher: str, version: str
) -> None:
    plan = planned(launcher, version)

    orders = (f.content for f in plan.files if f.path.suffix == ".json")
    commands = chain.from_iterable(parse_orders(text).commands for text in orders)
    words = [*plan.argv, *chain.from_iterable(command.argv for command in commands)]
    hostile = str(PACK) if launcher == "pack" else "$(touch x); *"
    assert hostile in words
    assert plan.directory == Path("/home/ada/a b")
    assert plan.log == FOLDER / "logs" / "0000000003.log"
    assert plan.stop_file == FOLDER / "run" / "control" / "0000000003.stop"
    assert file(plan, "agent").startswith("#!/bin/sh\n")
    assert all(one.mode in {0o600, 0o700} for one in plan.files)


# What was seen to be passed on; docs/reference/launchers.md has the table.
@pytest.mark.parametrize(
    ("flavour", "wanted", "elastic", "sent"),
    [
        (Flavour.OPEN_MPI_5, StopSignal.USR2, True, Signals.SIGUSR2),
        (Flavour.OPEN_MPI_5, StopSignal.TERM, True, None),
        (Flavour.OPEN_MPI_4, StopSignal.HUP, False, Signals.SIGUSR2),
        (Flavour.MPICH, StopSignal.USR2, True, Signals.SIGTERM),
        (Flavour.MPICH, StopSignal.INT, True, Signals.SIGINT),
        (Flavour.MPICH, StopSignal.USR2, False, Signals.SIGTERM),
    ],
)
def test_mpirun_gets_only_a_signal_that_it_passes_on(
    flavour: Flavour, wanted: StopSignal, sent: Signals | None, *, elastic: bool
) -> None:
    a_job = job(signal=wanted, elastic=elastic)

    plan = plan_world(request(a_job), MPIRUN[flavour])

    assert plan.stop_signal == sent
    around = [one for one in plan.files if one.path.name == "rank.json"]
    assert bool(around) == (not elastic)
    if around:
        orders = parse_orders(around[0].content)
        assert orders.commands[0].argv == a_job.command
        assert orders.sends == wanted
        assert sent is not None
        assert [f"SIG{name}" for name in orders.hears] == [sent.name]


def test_the_head_s_starter_tells_those_of_the_nodes_by_a_file() -> None:
    plan = plan_world(request(job("srun", elastic=False)), Tool("srun"))

    head = parse_orders(file(plan, "all.json"))
    node = parse_orders(file(plan, "node-1.json"))
    assert plan.stop_signal is Signals.SIGUSR2
    assert head.hears == ("USR2",)
    assert head.announces == node.heeds == f"{WORLD}/stop"
    assert (node.hears, node.sends, node.is_shielded) == (("TERM",), "USR2", True)


def test_an_agent_like_ssh_gets_the_variables_brought_along() -> None:
    site = Path("/site/rsh")
    there = request(job("srun"), launch_agent=site, environment={"FROM": "ada"})
    plan = plan_world(there, Tool("srun"))

    brought = dict(parse_orders(file(plan, "node-1.json")).commands[0].environment)
    assert (brought["FROM"], brought["FREETRAIN_GENERATION"]) == ("ada", "3")
    assert "FREETRAIN_LEASE" not in brought


def test_a_custom_launcher_of_an_elastic_program_gets_no_signal() -> None:
    elastic, other = (job("custom", via=("wrap",), elastic=e) for e in (True, False))

    assert plan_world(request(elastic), Tool("")).stop_signal is None
    assert plan_world(request(other), Tool("")).stop_signal is Signals.SIGUSR2


def test_a_pack_is_run_by_the_agent_s_python_and_asked_by_its_file() -> None:
    plan = plan_world(request(job("pack"), nodes=("n1",)), Tool(""))

    expected = "/venv/bin/python -E -P -m freetrain.pack"
    assert plan.argv == (*expected.split(), str(PACK))
    assert plan.stop_signal is None
    launch = read_launch(plan.environment)
    assert (launch.run_dir, launch.world_size) == (FOLDER / "run", 1)


def test_the_program_reads_from_its_variables_what_the_launcher_means() -> None:
    a_job = job(processes_per_node=2, threads=4, environment=(("A", "b"),))
    found = launcher_environment(request(a_job, after=2))

    launch = read_launch(found)
    assert launch.run_dir == FOLDER / "run"
    assert (launch.generation, launch.after, launch.world_size) == (3, 2, 6)
    assert launch.commit_every_s == 60
    assert (found["A"], found["OMP_NUM_THREADS"]) == ("b", "4")
    assert found["FREETRAIN_LEASE"] == "uuid-n1-0"
    assert found["FREETRAIN_WORLD"] == "digits/3"


def test_what_outer_jobs_and_launchers_left_behind_goes_and_tuning_stays() -> None:
    names = (
        *(
            "SLURM_JOB_ID",
            "PMIX_RANK",
            "PMI_FD",
            "OMPI_COMM_WORLD_SIZE",
            "PRTE_MCA_plm",
        ),
        *("OMPI_MCA_ess_base_vpid", "OMPI_MCA_btl", "FREETRAIN_AFTER", "HOME"),
        *("CUDA_VISIBLE_DEVICES", "SLURM_CONF"),
    )
    submitters = dict.fromkeys(names, "ada's")
    agents = dict.fromkeys(
        ("SLURM_CONF", "CUDA_VISIBLE_DEVICES", "SLURM_JOB_ID"), "ours"
    )

    found = launcher_environment(request(environment=submitters, environment_=agents))

    kept = {k: v for k, v in found.items() if not k.startswith("FREETRAIN_")}
    tuned = {"OMPI_MCA_btl": "ada's", "HOME": "ada's"}
    assert kept == tuned | {"SLURM_CONF": "ours", "CUDA_VISIBLE_DEVICES": "ours"}
    assert "FREETRAIN_AFTER" not in found


def test_a_program_that_is_not_elastic_is_never_told_to_wait() -> None:
    found = launcher_environment(request(job(elastic=False), after=2))

    assert "FREETRAIN_AFTER" not in found


@given(st.text(max_size=20))
def test_a_node_s_name_is_a_plain_one_or_refused(name: str) -> None:
    try:
        plan = plan_world(request(nodes=("n1", name)), MPIRUN[Flavour.OPEN_MPI_5])
    except CannotLaunchError:
        return
    assert name.replace("-", "").replace(".", "").replace("_", "").isalnum()
    assert file(plan, "hosts") == f"n1 slots=1\n{name} slots=1\n"


@pytest.mark.parametrize(
    "nodes", [(), ("n1", "n1"), ("-w",), ("n1,n2",), ("n[1-2]",), ("n1\nn2",)]
)
def test_nodes_that_no_launcher_would_take_for_one_are_refused(
    nodes: tuple[str, ...],
) -> None:
    with pytest.raises(CannotLaunchError, match="Nothing of it was started"):
        plan_world(request(nodes=nodes), MPIRUN[Flavour.OPEN_MPI_5])


def test_the_version_tells_which_mpirun_it_is() -> None:
    debian = flavour_of("mpirun.openmpi (OpenRTE) 4.1.4\n", path="mpirun")

    assert debian is Flavour.OPEN_MPI_4
    assert {flavour_of(said, path="mpirun"): said for said in VERSIONS.values()} == (
        VERSIONS
    )


@pytest.mark.parametrize("said", ["", "mpirun (Open MPI) 1.10.7", "bash 5"])
def test_an_unknown_mpirun_is_refused_with_what_to_do(said: str) -> None:
    with pytest.raises(CannotLaunchError, match='launcher = "custom"'):
        flavour_of(said, path="/x/mpirun")


@pytest.mark.parametrize(
    ("launcher", "version"), [case for case in EVERY if case[0] != "pack"]
)
def test_ranks_ask_the_spares_of_their_nodes_where_all_have_one(
    launcher: str, version: str
) -> None:
    with_spare, without = (
        planned(launcher, version, is_forked=is_forked) for is_forked in (True, False)
    )

    def words(plan: WorldPlan) -> str:
        files = (shlex.join(plan.argv), *(one.content for one in plan.files))
        return re.sub(r'[",\s]+', " ", "\n".join(files))

    asks = f"/venv/bin/python -I -S {rank.__file__} python train.py"
    assert asks in words(with_spare)
    assert "rank.py" not in words(without)


def test_a_spare_is_the_program_itself_on_the_node_of_its_lease() -> None:
    a_request = request(after=2)
    own = a_request.members[1].key

    plan = plan_spare(a_request, own, log=Path("/lease/spare.log"))

    assert plan.argv == job().command
    assert plan.directory == job().directory
    assert (plan.log, plan.stop_signal) == (Path("/lease/spare.log"), Signals.SIGTERM)
    assert plan.stop_file is None  # that of a world would end the world
    assert plan.environment["FREETRAIN_SPARE"] == "1,mpi,unasked"
    assert plan.environment["FREETRAIN_LEASE"] == "uuid-n2-0"
    assert plan.environment["FREETRAIN_WORLD"] == "digits/0000000000"


@pytest.mark.parametrize("flavour", [Flavour.OPEN_MPI_5, Flavour.MPICH])
@pytest.mark.parametrize("wanted", [StopSignal.USR2, StopSignal.TERM])
def test_mpirun_never_sees_a_colon_which_begins_another_program(
    flavour: Flavour, wanted: StopSignal
) -> None:
    command = ("python", "train.py", "a", ":", "b")
    plan = plan_world(request(job(command=command, signal=wanted)), MPIRUN[flavour])

    (around,) = (one for one in plan.files if one.path.name == "rank.json")
    orders = parse_orders(around.content)
    assert ":" not in plan.argv
    assert orders.commands[0].argv == command
    heard = set(orders.hears)
    assert heard == ({plan.stop_signal.name[3:]} if plan.stop_signal else set())


def test_a_colon_inside_a_word_is_nothing_to_mpirun() -> None:
    plan = plan_world(request(job(command=("python", "a:b"))), MPIRUN[Flavour.MPICH])
    assert plan.argv[-2:] == ("python", "a:b")
