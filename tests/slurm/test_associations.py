"""Limits as slurmctld and slurmdbd tell them, recorded from a real Slurm."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm.associations import (
    UNKNOWN_LIMITS,
    AccountingLimits,
    Association,
    Qos,
    assoc_mgr_argv,
    associations_argv,
    default_qos_argv,
    is_operator,
    parse_assoc_mgr,
    parse_associations,
    parse_default_qos,
    parse_qos,
    user_argv,
)
from slurm.backend import CommandLine
from slurm.errors import SlurmRefusedError, UnreadableOutputError

RECORDED = Path(__file__).parent.parent / "data" / "slurm" / "22.05" / "limits"

SCIENCE = Association(
    "science",
    parent="root",
    limits={
        "GrpJobs": 20,
        "GrpSubmitJobs": 40,
        "GrpTRES=cpu": 64,
        "GrpTRES=node": 6,
    },
)
LOW = Qos(
    "low",
    {
        "GrpJobs": 10,
        "GrpSubmitJobs": 12,
        "GrpTRES=node": 4,
        "MaxJobsPU": 7,
        "MaxSubmitJobsPU": 9,
        "MaxTRESPU=node": 3,
        "MaxJobsPA": 8,
        "MaxSubmitJobsPA": 11,
        "MaxTRESPA=node": 5,
    },
)


def recorded(name: str) -> str:
    return (RECORDED / name).read_text()


def test_slurmctld_tells_all_accounts_one_user_and_qos() -> None:
    found = parse_assoc_mgr(recorded("assoc_mgr.txt"))
    accounts = {each.account: each for each in found.associations if not each.user}
    users = {each.account: each for each in found.associations if each.user}

    assert found.has_accounts
    assert accounts["science"] == SCIENCE
    assert accounts["chemistry"].parent == "science"
    assert accounts["physics"].limits == {"GrpTRESRunMins=cpu": 100_000, "MaxJobs": 5}
    assert users["physics"] == Association(
        "physics",
        user="root",
        is_default=True,
        limits={"MaxJobs": 5, "MaxSubmitJobs": 30},
    )
    assert found.qos == (Qos("normal"), LOW)


def test_where_usage_is_private_slurmctld_tells_no_account() -> None:
    found = parse_assoc_mgr(recorded("assoc_mgr_private.txt"))
    assert not found.has_accounts
    assert {each.user for each in found.associations} == {"games"}


def test_slurmdbd_tells_the_same() -> None:
    found = parse_associations(recorded("associations.txt"), "root")
    told = parse_assoc_mgr(recorded("assoc_mgr.txt"))

    def by_name(each: Association) -> tuple[str, str]:
        return each.account, each.user

    expected = sorted(told.associations, key=by_name)
    assert [
        (each.account, each.user, each.parent, each.limits) for each in expected
    ] == [
        (each.account, each.user, each.parent, each.limits)
        for each in sorted(found, key=by_name)
    ]
    assert parse_qos(recorded("qos.txt")) == (Qos("normal"), LOW)


def test_another_release_has_a_lineage_in_place_of_a_number() -> None:
    text = recorded("assoc_mgr.txt")
    newer = text.replace(" Lft=", " Lineage=/x/")
    assert parse_assoc_mgr(newer) == parse_assoc_mgr(text)


def test_an_answer_that_is_cut_short_is_refused() -> None:
    text = recorded("assoc_mgr.txt")
    for part in ("", text[:-1], text[20:], text.replace(" Partition=", " ")):
        with pytest.raises(UnreadableOutputError):
            parse_assoc_mgr(part)


@given(st.text())
def test_any_other_answer_is_refused_and_nothing_else_raises(text: str) -> None:
    for read in (
        parse_qos,
        parse_assoc_mgr,
        parse_default_qos,
        lambda said: parse_associations(said, "a"),
    ):
        with suppress(UnreadableOutputError):
            read(text)


@pytest.mark.parametrize("name", ["", "a,b", "a=b"])
def test_a_name_that_would_be_read_as_several_is_refused(name: str) -> None:
    for argv in (
        assoc_mgr_argv,
        associations_argv,
        lambda user: default_qos_argv(user, "here"),
        lambda cluster: default_qos_argv("games", cluster),
    ):
        with pytest.raises(ValueError, match="cannot look for"):
            argv(name)


@pytest.mark.parametrize(
    ("level", "sees_all"),
    [("None", False), ("Not Set", False), ("Operator", True), ("Administrator", True)],
)
def test_operators_and_administrators_see_all_jobs_and_coordinators_do_not(
    level: str, *, sees_all: bool
) -> None:
    # A coordinator's record, of Slurm 22.05, says "None".
    said = (
        "Current Association Manager state\nUser Records\n"
        f"UserName=games(5) DefAccount=physics DefWckey= AdminLevel={level}\n"
    )

    assert is_operator(said, "games") is sees_all
    assert not is_operator(said, "ada")
    assert not is_operator(said[:-10], "games")
    assert user_argv("games")[-2:] == ("users=games", "flags=users")


# What is asked, and of whom.


@dataclass(frozen=True, slots=True)
class Answers:
    """A runner that has an answer for some commands, and is refused the others."""

    answers: Mapping[str, str]
    asked: list[str] = field(default_factory=list)

    def run(self, argv: Sequence[str], *, timeout_s: float) -> str:
        assert timeout_s <= 10.0
        what = argv[argv.index("show") + 1]
        self.asked.append(what)
        if what not in self.answers:
            raise SlurmRefusedError("no", said="Access denied")
        return self.answers[what]


def asked(**answers: str) -> tuple[AccountingLimits, list[str]]:
    runner = Answers(answers)
    limits = CommandLine(runner).limits("games", cluster="here")
    return limits, runner.asked


def test_where_accounts_are_hidden_slurmdbd_is_asked() -> None:
    private, qos = recorded("assoc_mgr_private.txt"), recorded("qos.txt")
    hidden, said = asked(assoc_mgr=private, qos=qos)
    assert said == ["assoc_mgr", "associations", "associations", "qos"]
    assert {each.account for each in hidden.associations} == {"art", "physics"}
    assert not hidden.has_accounts

    all_known, _ = asked(
        assoc_mgr=private, associations=recorded("associations.txt"), qos=qos
    )
    assert all_known.has_accounts
    assert SCIENCE in all_known.associations


def test_without_slurmdbd_slurmctld_tells_what_it_knows() -> None:
    limits, said = asked(assoc_mgr=recorded("assoc_mgr.txt"))
    assert said == ["assoc_mgr", "associations", "qos"]
    assert LOW in limits.qos


def test_the_qos_of_jobs_that_name_none_is_the_default_or_the_only_one() -> None:
    said = "physics||low|normal,low\nphysics|main||high\nart|||normal,low\n"
    assert parse_default_qos(said) == {
        ("physics", ""): "low",
        ("physics", "main"): "high",
        ("art", ""): "",
    }

    limits, _ = asked(
        assoc_mgr=recorded("assoc_mgr.txt").replace("root(0)", "games(5)"),
        associations="physics||low|normal,low\n",
    )
    ours = {a.account: a.default_qos for a in limits.associations if a.user == "games"}
    assert ours["physics"] == "low"
    assert not any(a.default_qos for a in limits.associations if not a.user)


def test_where_neither_answers_nothing_is_known() -> None:
    limits, _ = asked()
    assert limits == UNKNOWN_LIMITS
