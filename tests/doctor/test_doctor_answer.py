"""What a compute node's answer means, believed or not."""

import importlib.metadata
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freetrain.doctor.findings import Finding, Verdict
from freetrain.doctor.test_job import look_at_answer
from tests.doctor.subjects import by_name

RANK = "doctor-rank told=2 found={}\n"
GOOD: dict[str, object] = {
    "started_s": 1001.0,
    "ended_s": 1003.0,
    "host": "h",
    "node": "n1",
    "python": ".".join(map(str, sys.version_info[:3])),
    "freetrain": importlib.metadata.version("freetrain"),
    "links": "ok",
    "world_status": 0,
    "world_said": "some warning\n" + 2 * RANK.format(2),
    "agent_reached": True,
    "agent_said": "",
}


def findings(answer: dict[str, object]) -> dict[str, Finding]:
    return by_name(list(look_at_answer(answer, begun_s=1000.0, ended_s=1004.0)))


def test_a_good_answer_is_well_in_all_respects() -> None:
    found = findings(GOOD)

    assert {one.verdict for one in found.values()} == {Verdict.OK}
    assert "n1" in found["one-step run"].seen


@pytest.mark.parametrize(
    ("name", "changes", "verdict"),
    [
        ("versions there", {"python": "3.6.8"}, Verdict.BAD),
        ("versions there", {"freetrain": "0.0.1"}, Verdict.BAD),
        ("state directory there", {"links": "bad"}, Verdict.BAD),
        ("clock there", {"started_s": 900.0}, Verdict.WARN),
        ("clock there", {"ended_s": 1100.0}, Verdict.WARN),
        ("clock there", {"ended_s": None}, Verdict.SKIPPED),
        ("MPI there", {"world_failed": "there is no mpirun"}, Verdict.WARN),
        ("MPI there", {"world_status": 1}, Verdict.BAD),
        ("MPI there", {"world_status": None}, Verdict.BAD),
        ("MPI there", {"world_said": 2 * RANK.format(1)}, Verdict.BAD),
        ("MPI there", {"world_said": RANK.format(2)}, Verdict.BAD),
        ("MPI there", {"world_said": 2 * RANK.format("none")}, Verdict.OK),
        ("launch agent", {"agent_reached": False}, Verdict.BAD),
        ("launch agent", {"agent_reached": "yes"}, Verdict.BAD),
    ],
)
def test_each_thing_that_may_be_wrong_there_is_told(
    name: str, changes: dict[str, object], verdict: Verdict
) -> None:
    found = findings(GOOD | changes)

    assert found[name].verdict is verdict
    assert all(one.verdict is Verdict.OK for one in found.values() if one.name != name)


def test_ranks_that_are_worlds_of_one_are_told_apart_from_a_world() -> None:
    found = findings(GOOD | {"world_said": 2 * RANK.format(1)})

    assert "another MPI" in found["MPI there"].advice


def test_without_a_world_there_is_no_agent_to_judge() -> None:
    answer = {k: v for k, v in GOOD.items() if not k.startswith("agent")}

    assert findings(answer)["launch agent"].verdict is Verdict.SKIPPED


@given(
    st.fixed_dictionaries(
        {},
        optional={
            key: st.none() | st.text() | st.integers() | st.lists(st.text())
            for key in GOOD
        },
    )
)
def test_no_answer_whatever_it_holds_breaks_the_doctor(
    answer: dict[str, object],
) -> None:
    for found in look_at_answer(answer, begun_s=0.0, ended_s=1.0):
        assert found.name != "MPI there" or found.verdict is not Verdict.OK
