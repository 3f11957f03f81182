"""``freetrain logs``: what was printed, in order, and nothing done by it."""

import json

from freetrain.state.files import EndingKind, StateDir
from freetrain.state.tables import TrainerState
from tests.cli.commands import Terminal, refused, run
from tests.client.client_states import assign, end, put_state


def print_to(state: StateDir, generation: int, text: str | bytes) -> None:
    """Let the world of *generation* print *text*."""
    path = state.trainer("digits").logs / f"{generation:010d}.log"
    with path.open("ab") as file:
        file.write(text if isinstance(text, bytes) else text.encode())


def two_worlds(state: StateDir) -> None:
    assign(state, "digits", 1, nodes=2)
    assign(state, "digits", 2, nodes=1)
    print_to(state, 2, "three\n")
    print_to(state, 1, "one\ntwo")


def test_generations_come_in_order_with_a_line_between(digits: StateDir) -> None:
    two_worlds(digits)

    assert run("logs", "digits").stdout == (
        "==> digits, generation 1 on n1, n2 <==\none\ntwo\n"
        "==> digits, generation 2 on n1 <==\nthree\n"
    )


def test_one_generation_or_the_last_lines_only(digits: StateDir) -> None:
    two_worlds(digits)

    first = run("logs", "digits", "--generation", "1").stdout
    last = run("logs", "digits", "--tail", "2").stdout

    assert first.splitlines()[1:] == ["one", "two"]
    assert [line for line in last.splitlines() if "==>" not in line] == ["two", "three"]


def test_programs_get_a_record_a_line(digits: StateDir) -> None:
    two_worlds(digits)

    shown = run("logs", "digits", "--json").stdout

    records = [json.loads(line) for line in shown.splitlines()]
    assert [(one["generation"], one["text"]) for one in records] == [
        (1, "one\n"),
        (1, "two"),
        (2, "three\n"),
    ]


EVIL = b"\x1b]0;owned\x07\x1b[2J\x9b31m \xff\xfe\r 5%\r10%\r\nok\ttab\x00\n"


def test_on_a_terminal_control_characters_are_shown_and_not_done(
    digits: StateDir,
) -> None:
    print_to(digits, 1, EVIL)

    shown = run("logs", "digits", stdout=Terminal()).stdout

    assert "\\x1b]0;owned\\x07\\x1b[2J" in shown
    assert "\n 5%\n10%\nok\ttab\\x00\n" in shown
    assert not {c for c in shown if not c.isprintable()} - {"\n", "\t"}


def test_in_a_pipe_what_was_printed_is_left_as_it_is(digits: StateDir) -> None:
    print_to(digits, 1, EVIL)

    shown = run("logs", "digits").stdout

    assert shown.split("<==\n")[1] == EVIL.decode(errors="replace")


def test_a_character_cut_in_two_is_put_together(digits: StateDir) -> None:
    print_to(digits, 1, b"x" * (2**16 - 1) + "\u00e9".encode() + b"\n")

    assert run("logs", "digits").stdout.endswith("x\u00e9\n")


def test_following_goes_on_across_generations_until_the_trainer_ends(
    digits: StateDir,
) -> None:
    assign(digits, "digits", 1, nodes=2)
    print_to(digits, 1, "one\n")

    def rescale() -> None:
        assign(digits, "digits", 2, nodes=1)
        print_to(digits, 2, "ready\n")

    def finish() -> None:
        print_to(digits, 2, "done\n")
        end(digits, "digits", 2, EndingKind.FINISHED)
        put_state(digits, "digits", TrainerState.FINISHED)

    happens = iter([rescale, lambda: print_to(digits, 1, "last words\n"), finish])

    ran = run("logs", "-f", "digits", sleep=lambda _: next(happens)())

    assert ran.code == 0
    assert ran.stdout == (
        "==> digits, generation 1 on n1, n2 <==\none\n"
        "==> digits, generation 2 on n1 <==\nready\n"
        "==> digits, generation 1 on n1, n2 <==\nlast words\n"
        "==> digits, generation 2 on n1 <==\ndone\n"
    )


def test_following_ends_quietly_when_interrupted(digits: StateDir) -> None:
    print_to(digits, 1, "one\n")

    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    ran = run("logs", "--follow", "digits", sleep=interrupt)

    assert (ran.code, ran.stderr) == (0, "")


def test_the_agents_of_the_newest_world_are_asked(digits: StateDir) -> None:
    assigned = assign(digits, "digits", 1, nodes=2)
    assign(digits, "digits", 2, nodes=0)
    for member in assigned.members:
        lease = digits.lease(member.key)
        lease.create()
        lease.log.write_text(f"I am {member.node}\n")

    shown = run("logs", "digits", "--agent").stdout

    assert shown == (
        "==> agent on n1 (u1-0) <==\nI am n1\n==> agent on n2 (u2-0) <==\nI am n2\n"
    )


def test_asking_for_no_line_says_nothing_of_what_was_printed(digits: StateDir) -> None:
    assign(digits, "digits", 1, nodes=2)

    ran = run("logs", "digits", "--tail", "0")

    assert (ran.code, ran.stdout, ran.stderr) == (0, "", "")


def test_what_is_not_there_is_told(digits: StateDir) -> None:
    assign(digits, "digits", 1, nodes=0)

    nothing = run("logs", "digits")
    no_agent = run("logs", "digits", "--agent")
    line = refused("logs", "digits", "--generation", "7", code=64)

    assert (nothing.code, nothing.stdout) == (0, "")
    assert nothing.stderr == "digits has printed nothing so far.\n"
    assert no_agent == nothing
    assert "no generation 7; the newest is 1" in line
    assert "no trainer" in refused("logs", "other", code=64)
