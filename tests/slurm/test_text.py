"""Slurm's text: nodes, jobs, sdiag, configuration and topology as it prints them."""

import math
import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm import text as slurm_text
from slurm.errors import SlurmError, SlurmRefusedError, UnreadableOutputError
from slurm.records import (
    Gres,
    JobRecord,
    JobState,
    Leaf,
    Node,
    NodeState,
    choose_partition,
    collapse,
    expand,
    leaf_by_node,
    may_have_leaves,
    must_have_leaves,
)
from slurm.text import (
    FREE_WIDTH_COLUMNS,
    TYPED_WIDTHS,
    parse_config,
    parse_nodes,
    parse_partitions,
    parse_reservations,
    parse_sdiag,
    parse_squeue,
    parse_topology,
    parse_version,
    parse_waiting,
    squeue_argv,
    waiting_argv,
)
from tests.record_slurm import RECORDED, Pseudonyms
from tests.slurm.clusters import (
    RECORDINGS,
    SCENARIOS,
    fields_of,
    recorded,
    scontrol_text,
    squeue_text,
)

CONFIG = recorded("quiet", "config.txt")
PARTITIONS = recorded("quiet", "partitions.txt")
NODE = fields_of(
    "NodeName=n1 CPUAlloc=0 CPUTot=2 ActiveFeatures=ib,cpu Gres=(null) "
    "RealMemory=2000 State=IDLE Partitions=main,freetrain"
)


def nodes_of(scenario: str) -> dict[str, Node]:
    return {node.name: node for node in parse_nodes(recorded(scenario, "nodes.txt"))}


def jobs_of(scenario: str) -> dict[str, JobRecord]:
    return {job.name: job for job in parse_squeue(recorded(scenario, "jobs.txt"))}


def without_line(text: str, start: str, instead: str = "") -> str:
    changed = re.sub(rf"^{start}.*\n", instead, text, count=1, flags=re.MULTILINE)
    assert changed != text
    return changed


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_recording_names_the_commands_built_today(scenario: str) -> None:
    lines = recorded(scenario, "commands.txt").splitlines()
    commands = dict(line.split(": ", 1) for line in lines)

    built = {
        "nodes.txt": slurm_text.NODES_ARGV,
        "jobs.txt": tuple(squeue_argv()),
        "partitions.txt": slurm_text.PARTITIONS_ARGV,
        "reservations.txt": slurm_text.RESERVATIONS_ARGV,
        "sdiag-before.txt": slurm_text.SDIAG_ARGV,
        "sdiag-after.txt": slurm_text.SDIAG_ARGV,
        "config.txt": slurm_text.CONFIG_ARGV,
        "version.txt": slurm_text.VERSION_ARGV,
    }
    assert {f: tuple(shlex.split(commands[f])) for f in built} == built


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_recording_has_its_nodes_partitions_and_configuration(
    scenario: str,
) -> None:
    config = parse_config(recorded(scenario, "config.txt"))
    partitions = parse_partitions(recorded(scenario, "partitions.txt"))

    assert list(nodes_of(scenario)) == [f"n{number}" for number in range(1, 9)]
    assert [p.name for p in partitions] == ["main", "freetrain", "gpu", "debug"]
    assert (str(config.release), config.release.series) == ("22.05.8", (22, 5))
    preemption = (config.preempt_type, config.preempt_mode)
    assert preemption == ("preempt/partition_prio", "CANCEL")
    assert (config.kill_wait_s, config.complete_wait_s) == (5.0, 0.0)
    assert config.max_array_size == 101
    backfill = (config.bf_window_s, config.bf_resolution_s, config.bf_interval_s)
    assert backfill == (86_400, 30, 5)
    assert not config.has_epilog
    assert config.overrun_s(partitions[1], epilog_s=8.0) == 5.0
    assert config.private_data == (("jobs",) if scenario == "private" else ())


def test_a_node_has_its_features_resources_and_partitions() -> None:
    node = nodes_of("quiet")["n8"]

    assert node.states == {NodeState.IDLE}
    assert node.features == {"ib", "a100"}
    assert node.gres == (Gres("gpu", "a100", 2),)
    assert (node.cpus, node.memory_mib) == (2, 2000)
    assert node.partitions == ("main", "freetrain", "gpu")


def test_flags_stand_beside_the_base_state() -> None:
    busy, broken = nodes_of("busy"), nodes_of("broken")

    assert busy["n2"].states == {NodeState.ALLOCATED, NodeState.DRAIN}
    assert busy["n6"].states == {NodeState.IDLE, NodeState.PLANNED}
    assert busy["n7"].states == {NodeState.IDLE, NodeState.RESERVED, NodeState.PLANNED}
    assert broken["n1"].states == {NodeState.DOWN}
    assert broken["n3"].states == {NodeState.IDLE, NodeState.FAIL}


def test_an_administrators_remark_may_hold_line_breaks_and_keys() -> None:
    nodes = nodes_of("busy")

    assert nodes["n5"].comment == "comment with\nnewline Foo=bar"
    assert nodes["n2"].reason.startswith("bad disk [")
    assert "State=IDLE NodeName=n99" in nodes["n2"].reason
    assert NodeState.DRAIN in nodes["n2"].states


@pytest.mark.parametrize(
    ("text", "known", "unknown"),
    [
        ("DOWN*", "DOWN NOT_RESPONDING", ""),
        ("IDLE*+DRAIN", "IDLE NOT_RESPONDING DRAIN", ""),
        ("IDLE+CLOUD+POWERED_DOWN", "IDLE CLOUD POWERED_DOWN", ""),
        ("IDLE+BEWITCHED", "IDLE", "BEWITCHED"),
    ],
)
def test_states_are_known_words_and_unknown_ones(
    text: str, known: str, unknown: str
) -> None:
    (node,) = parse_nodes(scontrol_text([NODE | {"State": text}]))

    assert node.states == set(map(NodeState, known.split()))
    assert node.unknown_states == set(unknown.split())


@pytest.mark.parametrize(
    ("text", "gres"),
    [
        ("gpu:2", (Gres("gpu", "", 2),)),
        ("gpu:a100:4(S:0-1)", (Gres("gpu", "a100", 4),)),
        ("gpu:a100:2(S:0,1),nic:1", (Gres("gpu", "a100", 2), Gres("nic", "", 1))),
        ("bandwidth:lustre:no_consume:4K", (Gres("bandwidth", "lustre", 4096),)),
        ("fpga", (Gres("fpga", "", 1),)),
        ("(null)", ()),
    ],
)
def test_generic_resources_are_counted(text: str, gres: tuple[Gres, ...]) -> None:
    (node,) = parse_nodes(scontrol_text([NODE | {"Gres": text}]))

    assert node.gres == gres


@pytest.mark.parametrize("key", ["State", "CPUTot", "RealMemory", "Gres"])
def test_a_missing_field_is_named_with_its_line(key: str) -> None:
    torn = {name: value for name, value in NODE.items() if name != key}

    with pytest.raises(UnreadableOutputError, match=f"line 2 .*the field {key} is"):
        parse_nodes(scontrol_text([NODE, torn]))


@pytest.mark.parametrize(
    "text", ["", "\n", "No nodes in the system\n", "NodeName=n1 State=IDLE", "\0\xff\n"]
)
def test_an_answer_without_a_node_is_a_failed_query(text: str) -> None:
    with pytest.raises(UnreadableOutputError, match="scontrol show nodes"):
        parse_nodes(text)


@pytest.mark.parametrize(
    ("file", "parse"),
    [
        ("nodes.txt", parse_nodes),
        ("partitions.txt", parse_partitions),
        ("reservations.txt", parse_reservations),
    ],
)
def test_an_answer_cut_within_a_line_is_refused(
    file: str, parse: Callable[[str], object]
) -> None:
    answer = recorded("busy", file)

    for at in range(1, len(answer), 97):
        if answer[at - 1] != "\n" and answer[:at].strip():
            said = f"line {answer.count(chr(10), 0, at) + 1} .* cut short"
            with pytest.raises(UnreadableOutputError, match=said):
                parse(answer[:at])


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused_with_our_own_error(text: str) -> None:
    for parse in (parse_nodes, parse_partitions, parse_reservations, parse_sdiag):
        try:
            parse(text)
        except SlurmError:
            continue


def test_whole_nodes_are_a_field_of_their_own_from_26_05_on() -> None:
    later = PARTITIONS.replace("ExclusiveUser=NO", "Exclusive=NODE")
    later = later.replace("OverSubscribe=EXCLUSIVE", "OverSubscribe=NO")

    assert PARTITIONS.count("OverSubscribe=NO") < later.count("OverSubscribe=NO")
    assert parse_partitions(later)[0].oversubscribe == "EXCLUSIVE"


def test_a_partition_is_chosen_by_its_name_or_is_the_default_one() -> None:
    partitions = parse_partitions(PARTITIONS)

    assert choose_partition(partitions, "gpu").name == "gpu"
    assert choose_partition(partitions, "").name == "main"


@pytest.mark.parametrize(
    ("first", "name", "said"),
    [
        (0, "gone", "no partition 'gone' that we may see; nothing was done. Name"),
        (1, "", "no default partition that we may see; nothing was done. Name one"),
    ],
)
def test_a_partition_that_is_not_there_is_refused_and_those_that_are_are_named(
    first: int, name: str, said: str
) -> None:
    partitions = parse_partitions(PARTITIONS)[first:]

    with pytest.raises(SlurmRefusedError, match=said) as refused:
        choose_partition(partitions, name, where="with --partition")

    assert "debug, freetrain, gpu" in str(refused.value)
    assert str(refused.value).endswith(" with --partition.")


def test_partitions_tell_limits_tiers_and_grace_times() -> None:
    partitions = parse_partitions(PARTITIONS)
    main, ours, gpu, debug = partitions

    assert (main.max_time_s, main.priority_tier, main.is_default) == (86_400, 10, True)
    preemption = (ours.grace_time_s, ours.preempt_mode, ours.priority_tier)
    assert preemption == (10, "CANCEL", 1)
    assert (gpu.max_time_s, debug.is_hidden) == (math.inf, True)
    assert main.oversubscribe == "EXCLUSIVE"
    assert all(p.is_up and p.over_time_limit_s is None for p in partitions)


def test_reservations_tell_their_flags_and_times() -> None:
    found = parse_reservations(recorded("busy", "reservations.txt"))
    by_name = {reservation.name: reservation for reservation in found}

    assert by_name.keys() == {"maint1", "daily1", "float1", "active1"}
    assert by_name["maint1"].flags == {"MAINT", "IGNORE_JOBS", "SPEC_NODES"}
    assert by_name["daily1"].nodes == "n6"
    assert by_name["daily1"].end_s == by_name["daily1"].start_s + 3600
    assert "TIME_FLOAT" in by_name["float1"].flags


def test_no_reservation_is_said_in_words() -> None:
    assert parse_reservations(recorded("quiet", "reservations.txt")) == ()
    with pytest.raises(UnreadableOutputError, match="empty"):
        parse_reservations("")


def test_sdiag_shows_whether_backfill_is_at_work() -> None:
    quiet = parse_sdiag(recorded("quiet", "sdiag-before.txt"))
    torn = parse_sdiag(recorded("torn", "sdiag-before.txt"))

    assert (quiet.bf_active, torn.bf_active) == (False, True)
    assert quiet.taken_s > quiet.since_s
    assert torn.bf_last_cycle_s == 1_795_249_270.0
    assert torn.bf_cycles > 0


def test_sdiag_may_lack_lines_that_are_not_read_and_a_first_cycle() -> None:
    text = recorded("torn", "sdiag-before.txt")
    young = without_line(text, "\tLast cycle when", "\tLast cycle when: N/A\n")

    assert parse_sdiag(without_line(text, "Server thread count")) == parse_sdiag(text)
    assert parse_sdiag(young).bf_last_cycle_s is None


# Jobs, whatever their names hold.

TYPED_TEXT = st.text(
    alphabet=st.characters(min_codepoint=1, exclude_categories=["Cs"]), max_size=300
)
HOSTILE = TYPED_TEXT | st.sampled_from(
    ["|" * 300, "\n" * 99, "a|b|c\n1|1|1|", "é" * 100, "$(id)", "'\";"]
)


def test_an_empty_queue_is_a_header_and_no_job() -> None:
    assert parse_squeue(recorded("quiet", "jobs.txt")) == ()


def test_a_recorded_plan_has_its_start_and_its_nodes() -> None:
    job = jobs_of("busy")["big"]

    assert job.is_planned
    assert (job.planned_nodes, job.start_s) == ("n[1,3-7]", 1_795_253_581.0)
    assert (job.limit_s, job.node_count, job.partitions) == (3600.0, 6, ("main",))
    assert job.reason == "ReqNodeNotAvail, UnavailableNodes:n2"
    assert (job.array_job_id, job.array_task_id, job.array_tasks) == (None, None, "")


def test_a_start_asked_for_with_begin_is_no_plan_and_an_unknown_one_no_start() -> None:
    later, dependent = jobs_of("busy")["later"], jobs_of("busy")["dep"]

    assert later.start_s is not None
    assert (later.start_s, later.reason) == (later.eligible_s, "BeginTime")
    assert not later.is_planned
    assert dependent.start_s is None
    assert dependent.dependency.startswith("afterok:2")


def test_names_with_separators_quotes_and_line_breaks_are_read_as_they_are() -> None:
    jobs = jobs_of("busy")

    weird = jobs["we|ird \"name\"  with 'quotes'  é雪"]
    assert weird.comment == 'pipe|comment "x"  $(id); é'
    assert weird.user == "trainer"
    assert jobs["new\nline\ttab"].comment == "two\nlines Foo=bar JobId=99"


def test_array_tasks_keep_both_of_their_numbers() -> None:
    jobs = parse_squeue(recorded("busy", "jobs.txt"))

    tasks = [job for job in jobs if job.name == "arr"]
    waiting = next(job for job in tasks if job.is_pending)
    first = next(job for job in tasks if job.array_task_id == 0)
    assert (waiting.display_id, waiting.array_tasks) == ("22_[2-20%2]", "2-20%2")
    ids = (waiting.job_id, waiting.array_job_id, waiting.array_task_id)
    assert ids == (22, 22, None)
    assert (first.display_id, first.job_id, first.array_job_id) == ("22_0", 27, 22)


def test_a_held_job_has_priority_0_and_a_lease_its_nice_value() -> None:
    assert jobs_of("busy")["held"].priority == 0
    assert jobs_of("leases")["ft-0b5e"].nice == 10_000


@given(st.lists(st.tuples(HOSTILE, HOSTILE, HOSTILE), max_size=5))
def test_no_text_of_a_user_changes_another_column(
    texts: list[tuple[str, str, str]],
) -> None:
    rows = [
        {
            "JobID": str(number),
            **dict(zip(("Name", "Comment", "Feature"), typed, strict=True)),
            "SchedNodes": f"n[1-{number + 2}]",
            "StartTime": "2026-11-21T08:22:20",
        }
        for number, typed in enumerate(texts)
    ]

    jobs = parse_squeue(squeue_text(rows))

    assert [job.job_id for job in jobs] == list(range(len(texts)))
    assert [job.planned_nodes for job in jobs] == [row["SchedNodes"] for row in rows]
    assert {job.start_s for job in jobs} <= {1_795_249_340.0}


@pytest.mark.parametrize(
    ("column", "text", "field", "value"),
    [
        ("TimeLimit", "UNLIMITED", "limit_s", math.inf),
        ("TimeLimit", "NOT_SET", "limit_s", None),
        ("TimeLimit", "2-03:04:05", "limit_s", 183_845.0),
        ("TimeLimit", "10:00", "limit_s", 600.0),
        ("NumNodes", "2-4", "node_count", 2),
        ("NumCPUs", "4K", "cpu_count", 4096),
        ("State", "COMPLETING", "states", frozenset({JobState.COMPLETING})),
        ("State", "BEWITCHED", "unknown_states", frozenset({"BEWITCHED"})),
        ("Partition", "a,b", "partitions", ("a", "b")),
        ("Nice", "-5", "nice", -5),
    ],
)
def test_values_are_read_in_all_their_forms(
    column: str, text: str, field: str, value: object
) -> None:
    (job,) = parse_squeue(squeue_text([{"JobID": "1", column: text}]))

    assert getattr(job, field) == value


@pytest.mark.parametrize(
    ("column", "text"),
    [
        *(("JobID", "x"), ("StartTime", "tomorrow"), ("TimeLimit", "soon")),
        *(("Nice", "a lot"), ("NumNodes", "many"), ("UserID", "me")),
    ],
)
def test_a_value_that_is_none_is_refused_and_its_line_named(
    column: str, text: str
) -> None:
    jobs = [{"JobID": "1", "Name": "two\nlines"}, {"JobID": "2", column: text}]

    with pytest.raises(UnreadableOutputError, match="line 4 of `squeue`"):
        parse_squeue(squeue_text(jobs))


@pytest.mark.parametrize("scenario", ["busy", "leases"])
def test_an_answer_cut_anywhere_is_refused_or_ends_with_a_whole_job(
    scenario: str,
) -> None:
    answer = recorded(scenario, "jobs.txt")
    whole = parse_squeue(answer)

    for at in range(1, len(answer), 7):
        try:
            jobs = parse_squeue(answer[:at])
        except UnreadableOutputError:
            continue
        assert jobs == whole[: len(jobs)]
        assert answer[at - 1] == "\n"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        *((empty, "empty") for empty in ("", "\n", " \n \n")),
        ("slurm_load_jobs error: Invalid job id specified\n", "Name is not"),
        (  # a field that a release does not know
            re.sub(
                r"\|[^|\n]*\|$", "|", recorded("busy", "jobs.txt"), flags=re.MULTILINE
            ),
            "line 1 of `squeue`",
        ),
    ],
)
def test_an_answer_that_is_none_is_refused(answer: str, said: str) -> None:
    with pytest.raises(UnreadableOutputError, match=said):
        parse_squeue(answer)


def test_nodes_are_asked_for_uncut_and_users_columns_at_a_width() -> None:
    (format_option,) = [a for a in squeue_argv() if a.startswith("--Format=")]
    fields = format_option.removeprefix("--Format=").split(",")

    assert "SchedNodes:|" in fields
    assert fields[: len(TYPED_WIDTHS)] == [f"{f}:{w}|" for f, w in TYPED_WIDTHS.items()]
    assert len(fields) == len(TYPED_WIDTHS) + len(FREE_WIDTH_COLUMNS)


def test_jobs_are_looked_up_by_name_one_line_a_task() -> None:
    argv = squeue_argv(names=["ft-1", "ft-2"], all_states=True)

    assert argv[-3:] == ["--array", "--name=ft-1,ft-2", "--states=all"]


@pytest.mark.parametrize("name", ["", "a,b", "a\0b"])
def test_a_name_that_would_be_read_as_several_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="cannot look for"):
        squeue_argv(names=[name])


# The release, the configuration and the topology.


def test_the_time_that_a_job_may_overrun_adds_up() -> None:
    text = without_line(CONFIG, "OverTimeLimit ", "OverTimeLimit = 2 min\n")
    config = parse_config(without_line(text, "Epilog ", "Epilog[0] = /etc/epilog\n"))

    main = parse_partitions(PARTITIONS)[0]
    assert config.overrun_s(main, epilog_s=8.0) == 120.0 + 5.0 + 8.0


# Printed by 22.05.8 after its own settings, and before what follows.
CGROUPS = """
Cgroup Support Configuration:
AllowedRAMSpace         = 100.0%
ConstrainCores          = yes
ConstrainDevices        = no
ConstrainRAMSpace       = yes
"""


@pytest.mark.parametrize(
    ("plugin", "gathering", "confined"),
    [
        ("task/affinity,task/cgroup", "(null)", {"cpus", "memory"}),
        ("task/cgroup", "NoShared", {"cpus", "memory"}),
        ("task/affinity", "(null)", set()),
        ("task/none", "UsePss,OverMemoryKill", {"memory"}),
    ],
)
def test_slurm_keeps_jobs_to_what_its_task_plugin_and_cgroups_say(
    plugin: str, gathering: str, confined: set[str]
) -> None:
    text = without_line(CONFIG, "TaskPlugin ", f"TaskPlugin = {plugin}\n")
    text = without_line(
        text, "JobAcctGatherParams", f"JobAcctGatherParams = {gathering}\n"
    )

    assert parse_config(text + CGROUPS).confines == confined


def test_settings_that_are_not_set_have_slurms_defaults() -> None:
    unset = without_line(CONFIG, "SchedulerParam", "SchedulerParameters = (null)\n")
    config = parse_config(unset)
    builtin = parse_config(CONFIG.replace("sched/backfill", "sched/builtin"))
    old = parse_config(re.sub(r".*Topology.*\n", "", CONFIG))

    twice = parse_config(f"{CONFIG}KillWait = 99 sec\n")

    assert twice.kill_wait_s == 5.0  # the first counts
    backfill = (config.bf_window_s, config.bf_resolution_s, config.bf_interval_s)
    assert backfill == (86_400, 60, 30)
    assert builtin.bf_window_s == math.inf
    assert old.topology_plugin == ""


@pytest.mark.parametrize("setting", ["KillWait", "MaxArraySize", "SLURM_VERSION"])
def test_a_setting_that_is_missing_is_named(setting: str) -> None:
    said = f"the setting {setting} is missing"

    with pytest.raises(UnreadableOutputError, match=said):
        parse_config(without_line(CONFIG, setting))


@pytest.mark.parametrize(
    ("text", "series"),
    [
        ("slurm-wlm 22.05.8\n", (22, 5)),
        ("slurm 26.05.3\n", (26, 5)),
        ("slurm 25.11.0rc1", (25, 11)),
    ],
)
def test_the_release_is_read_from_sinfo(text: str, series: tuple[int, int]) -> None:
    assert parse_version(text).series == series


def test_a_release_that_is_none_is_refused() -> None:
    with pytest.raises(UnreadableOutputError, match="no release"):
        parse_version("sinfo: command not found")


TOPOLOGIES = {
    f"{path.parent.parent.name} {path.parent.name}": path
    for path in sorted(RECORDINGS.parent.glob("*/*/topology.txt"))
}
ANONYMOUS = next(file.change for file in RECORDED if file.file == "topology.txt")


def test_there_are_recordings_of_both_kinds_and_of_a_file_in_yaml() -> None:
    old, new = ["22.05 tree", "24.11 block"], ["26.05 block", "26.05 tree"]
    assert list(TOPOLOGIES) == [*old, "24.11 tree", *new, "26.05 yaml"]


@pytest.mark.parametrize("path", TOPOLOGIES.values(), ids=TOPOLOGIES)
def test_every_recording_has_two_racks_of_four_also_under_other_names(
    path: Path,
) -> None:
    text = path.read_text("utf-8")
    made = ANONYMOUS(Pseudonyms(), text)

    racks = leaf_by_node(parse_topology(text))
    renamed = list(leaf_by_node(parse_topology(made)).values())

    assert racks == {f"n{n}": "rack1" if n <= 4 else "rack2" for n in range(1, 9)}
    assert "rack" not in made
    assert sorted(map(renamed.count, {*renamed})) == [4, 4]
    command = shlex.split(path.with_name("commands.txt").read_text("utf-8"))
    assert command == ["topology.txt:", *slurm_text.TOPOLOGY_ARGV]


def test_silence_is_how_slurm_says_that_there_is_no_topology() -> None:
    assert parse_topology("") == parse_topology("\n") == ()
    assert ANONYMOUS(Pseudonyms(), "") == ""


def test_a_leaf_without_nodes_and_kinds_that_are_not_known_are_left_out() -> None:
    text = (
        "SwitchName=s0 Level=0 LinkSpeed=1\n"
        "SwitchName=s1 Level=0 LinkSpeed=1 Nodes=(null)\n"
        "RingName=r1 Nodes=n[1-2]\n"
        "SwitchName=s2 Level=0 LinkSpeed=1 Nodes=n3 Newer=thing\n"
    )

    assert parse_topology(text) == (Leaf("s2", "n3"),)


def test_a_node_below_two_leaves_counts_to_the_first() -> None:
    leaves = [Leaf("s1", "n[1-3]"), Leaf("s2", "n[3-4]")]

    assert leaf_by_node(leaves) == {"n1": "s1", "n2": "s1", "n3": "s1", "n4": "s2"}


@pytest.mark.parametrize(
    "text",
    [
        "SwitchName=s0 Level=0 LinkSpeed=1 Nodes=n[1-4]",  # cut short
        "SwitchName=s0 Level=0 LinkSpeed=1 Nodes=n[1-\n",
        "slurm_load_topo error: Unable to contact slurm controller\n",
        "\x1b[31m<html>502 Bad Gateway</html>\n",
        " SwitchName=s0 Level=0 Nodes=n1\n",
    ],
)
def test_an_answer_that_is_no_topology_is_refused(text: str) -> None:
    with pytest.raises(UnreadableOutputError, match="cannot read line"):
        parse_topology(text)


NAMES = st.text("abs-1", min_size=1, max_size=4)
NODE_SETS = st.sets(st.integers(0, 40), min_size=1)


@given(st.dictionaries(NAMES, NODE_SETS, min_size=1, max_size=5))
def test_a_topology_written_as_slurm_does_is_read_again(
    racks: dict[str, set[int]],
) -> None:
    lists = {name: collapse(f"n{k}" for k in nodes) for name, nodes in racks.items()}
    lines = [
        f"SwitchName={name} Level=0 LinkSpeed=1 Nodes={nodes}\n"
        for name, nodes in lists.items()
    ]
    top = "SwitchName=top Level=1 LinkSpeed=1 Nodes=n[0-40] Switches=s[0-9]\n"

    leaves = parse_topology("".join(lines) + top)

    assert {leaf.name: leaf.nodes for leaf in leaves} == lists
    for node, name in leaf_by_node(leaves).items():
        assert node in expand(lists[name])


def test_whether_to_ask_goes_by_the_plugin_and_from_25_05_on_always() -> None:
    old = parse_config(CONFIG)
    tree = replace(old, topology_plugin="topology/tree")
    release = replace(old.release, major=25)
    flat = replace(old, release=release, topology_plugin="topology/flat")

    assert old.topology_plugin == "topology/none"
    asked = [(may_have_leaves(c), must_have_leaves(c)) for c in (old, tree, flat)]
    assert asked == [(False, False), (True, True), (True, False)]


SHARING = sorted(RECORDINGS.parent.glob("*/sharing"))


@pytest.mark.parametrize("folder", SHARING, ids=lambda path: path.parent.name)
def test_waiting_jobs_say_how_they_share_nodes_and_which_they_exclude(
    folder: Path,
) -> None:
    """Plain, exclusive, of one user, of one label, oversubscribing; plain again."""
    release = parse_version(f"slurm {folder.parent.name}.1")
    command = f"waiting.txt: {shlex.join(waiting_argv(release))}\n"
    told = (folder / "waiting.txt").read_text("utf-8")

    assert (folder / "commands.txt").read_text("utf-8") == command
    words = {number: word for number, (word, _) in parse_waiting(told).items()}
    assert words.pop(5) in {"OK", "YES"}
    assert words == {1: "OK", 2: "NO", 3: "USER", 4: "MCS", 6: "OK"}
    excluded = {number: nodes for number, (_, nodes) in parse_waiting(told).items()}
    assert {number for number, nodes in excluded.items() if nodes} == {6}
    assert excluded[6] == "n[1-2]"


def test_an_answer_about_waiting_jobs_is_whole_or_an_error() -> None:
    header = "JOBID|OVER_SUBSCRIBE|EXC_NODES|\n"
    assert parse_waiting(f"{header}9|OK|(null)|\n") == {9: ("OK", "")}
    for broken in ("7|NO|", "x|NO|n1|", "7", "7|NO|n1|x|"):
        with pytest.raises(UnreadableOutputError):
            parse_waiting(f"{header}{broken}\n")
    for text in ("", header[:-1]):
        with pytest.raises(UnreadableOutputError):
            parse_waiting(text)
