"""Nodes, partitions, reservations and configuration as scontrol writes them."""

import math
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm.errors import SlurmError, SlurmRefusedError, UnreadableOutputError
from slurm.records import Gres, Node, NodeState, choose_partition
from slurm.text import (
    CONFIG_ARGV,
    NODES_ARGV,
    PARTITIONS_ARGV,
    RESERVATIONS_ARGV,
    SDIAG_ARGV,
    VERSION_ARGV,
    parse_config,
    parse_nodes,
    parse_partitions,
    parse_reservations,
    parse_sdiag,
    parse_version,
)
from tests.slurm_library.clusters import SCENARIOS, recorded
from tests.slurm_library.rendering import scontrol_text

NODE = {
    "NodeName": "n1",
    "CPUAlloc": "0",
    "CPUTot": "2",
    "ActiveFeatures": "ib,cpu",
    "Gres": "(null)",
    "RealMemory": "2000",
    "State": "IDLE",
    "Partitions": "main,freetrain",
}


def nodes_of(scenario: str) -> dict[str, Node]:
    return {node.name: node for node in parse_nodes(recorded(scenario, "nodes.txt"))}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_recording_names_the_commands_built_today(scenario: str) -> None:
    lines = recorded(scenario, "commands.txt").splitlines()
    commands = dict(line.split(": ", 1) for line in lines)

    built = {
        "nodes.txt": NODES_ARGV,
        "partitions.txt": PARTITIONS_ARGV,
        "reservations.txt": RESERVATIONS_ARGV,
        "sdiag-before.txt": SDIAG_ARGV,
        "sdiag-after.txt": SDIAG_ARGV,
        "config.txt": CONFIG_ARGV,
        "version.txt": VERSION_ARGV,
    }
    assert {f: tuple(shlex.split(commands[f])) for f in built} == built


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_recording_has_eight_nodes_and_four_partitions(scenario: str) -> None:
    assert list(nodes_of(scenario)) == [f"n{number}" for number in range(1, 9)]
    partitions = parse_partitions(recorded(scenario, "partitions.txt"))
    assert [p.name for p in partitions] == ["main", "freetrain", "gpu", "debug"]


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
        ("DOWN*", {NodeState.DOWN, NodeState.NOT_RESPONDING}, set()),
        (
            "IDLE*+DRAIN",
            {NodeState.IDLE, NodeState.NOT_RESPONDING, NodeState.DRAIN},
            set(),
        ),
        (
            "IDLE+CLOUD+POWERED_DOWN",
            {NodeState.IDLE, NodeState.CLOUD, NodeState.POWERED_DOWN},
            set(),
        ),
        ("IDLE+BEWITCHED", {NodeState.IDLE}, {"BEWITCHED"}),
    ],
)
def test_states_are_known_words_and_unknown_ones(
    text: str, known: set[NodeState], unknown: set[str]
) -> None:
    (node,) = parse_nodes(scontrol_text([NODE | {"State": text}]))

    assert node.states == known
    assert node.unknown_states == unknown


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
    "text",
    ["", "\n", "No nodes in the system\n", "NodeName=n1 State=IDLE", "\x00\xff\n"],
)
def test_an_answer_without_a_node_is_a_failed_query(text: str) -> None:
    with pytest.raises(UnreadableOutputError, match="scontrol show nodes"):
        parse_nodes(text)


@pytest.mark.parametrize("file", ["nodes.txt", "partitions.txt", "reservations.txt"])
def test_an_answer_cut_within_a_line_is_refused(file: str) -> None:
    parse = {
        "nodes.txt": parse_nodes,
        "partitions.txt": parse_partitions,
        "reservations.txt": parse_reservations,
    }[file]
    answer = recorded("busy", file)

    for at in range(1, len(answer), 97):
        if answer[at - 1] != "\n" and answer[:at].strip():
            with pytest.raises(UnreadableOutputError, match="cut short"):
                parse(answer[:at])


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused_with_our_own_error(text: str) -> None:
    for parse in (parse_nodes, parse_partitions, parse_reservations, parse_sdiag):
        try:
            parse(text)
        except SlurmError:
            continue


def test_whole_nodes_are_a_field_of_their_own_from_26_05_on() -> None:
    told = recorded("quiet", "partitions.txt")
    before = "ExclusiveUser=NO", "OverSubscribe=EXCLUSIVE"
    later = "Exclusive=NODE", "OverSubscribe=NO"
    for old, new in zip(before, later, strict=True):
        assert old in told
        told = told.replace(old, new)

    assert parse_partitions(told)[0].oversubscribe == "EXCLUSIVE"


def test_a_partition_is_chosen_by_its_name_or_is_the_default_one() -> None:
    partitions = parse_partitions(recorded("quiet", "partitions.txt"))

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
    partitions = parse_partitions(recorded("quiet", "partitions.txt"))[first:]

    with pytest.raises(SlurmRefusedError, match=said) as refused:
        choose_partition(partitions, name, where="with --partition")

    assert "debug, freetrain, gpu" in str(refused.value)
    assert str(refused.value).endswith(" with --partition.")


def test_partitions_tell_limits_tiers_and_grace_times() -> None:
    partitions = parse_partitions(recorded("quiet", "partitions.txt"))
    main, ours, gpu, debug = partitions

    assert (main.max_time_s, main.priority_tier, main.is_default) == (86_400, 10, True)
    assert (ours.grace_time_s, ours.preempt_mode, ours.priority_tier) == (
        10,
        "CANCEL",
        1,
    )
    assert gpu.max_time_s == math.inf
    assert debug.is_hidden
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


def test_sdiag_may_lack_lines_that_are_not_read() -> None:
    text = recorded("torn", "sdiag-before.txt")
    lines = [line for line in text.splitlines() if "Server thread count" not in line]

    assert len(lines) == len(text.splitlines()) - 1
    assert parse_sdiag("\n".join(lines) + "\n") == parse_sdiag(text)


def test_sdiag_before_the_first_backfill_cycle_has_no_time() -> None:
    text = recorded("quiet", "sdiag-before.txt")
    start = text.index("\tLast cycle when")
    end = text.index("\n", start)

    assert (
        parse_sdiag(f"{text[:start]}\tLast cycle when: N/A{text[end:]}").bf_last_cycle_s
        is None
    )


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_configuration_has_what_the_broker_asks_for(scenario: str) -> None:
    config = parse_config(recorded(scenario, "config.txt"))
    partitions = parse_partitions(recorded(scenario, "partitions.txt"))

    assert str(config.release) == "22.05.8"
    assert config.release.series == (22, 5)
    assert (config.preempt_type, config.preempt_mode) == (
        "preempt/partition_prio",
        "CANCEL",
    )
    assert (config.kill_wait_s, config.complete_wait_s) == (5.0, 0.0)
    assert config.max_array_size == 101
    assert (config.bf_window_s, config.bf_resolution_s, config.bf_interval_s) == (
        86_400,
        30,
        5,
    )
    assert not config.has_epilog
    assert config.overrun_s(partitions[1], epilog_s=8.0) == 5.0
    assert config.private_data == (("jobs",) if scenario == "private" else ())


def test_what_a_job_may_overrun_adds_up() -> None:
    text = recorded("quiet", "config.txt")
    text = text.replace("OverTimeLimit           = 0 min", "OverTimeLimit = 2 min")
    text = text.replace("Epilog                  = (null)", "Epilog[0] = /etc/epilog")
    config = parse_config(text)
    main = parse_partitions(recorded("quiet", "partitions.txt"))[0]

    assert config.overrun_s(main, epilog_s=8.0) == 120.0 + 5.0 + 8.0


def test_without_backfill_there_is_no_window() -> None:
    text = recorded("quiet", "config.txt").replace("sched/backfill", "sched/builtin")

    assert parse_config(text).bf_window_s == math.inf


def test_scheduler_parameters_that_are_not_set_have_slurms_defaults() -> None:
    text = recorded("quiet", "config.txt")
    start = text.index("SchedulerParameters ")
    end = text.index("\n", start)

    config = parse_config(f"{text[:start]}SchedulerParameters = (null){text[end:]}")

    assert (config.bf_window_s, config.bf_resolution_s, config.bf_interval_s) == (
        86_400,
        60,
        30,
    )


@pytest.mark.parametrize("setting", ["KillWait", "MaxArraySize", "SLURM_VERSION"])
def test_a_setting_that_is_missing_is_named(setting: str) -> None:
    text = recorded("quiet", "config.txt")
    lines = [line for line in text.split("\n") if not line.startswith(setting)]

    with pytest.raises(
        UnreadableOutputError, match=f"the setting {setting} is missing"
    ):
        parse_config("\n".join(lines))


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
