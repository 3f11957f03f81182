"""What stands in each kind of table, made without touching one."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from freetrain.cron.block import Block
from freetrain.cron.errors import CronUnfitError
from freetrain.cron.times import LONGEST_S, MINUTE_S, SHORTEST_S, entries

if TYPE_CHECKING:
    from collections.abc import Mapping

    from freetrain.cron.call import TickCall

LONGEST_COMMAND_BYTES = 990
"""Vixie's cron, which Debian and others ship, takes commands of up to 998 bytes."""

_BEFORE_NEXT_S = 5
"""A tick does not follow itself up when the next is so near."""

_SCRON_LIMIT_MIN = 10
_SCRON_STAYS_S = 20
"""A tick that is a job holds a part of a node, which others may wait for."""


def crontab_block(call: TickCall, *, every_s: int) -> Block:
    """Return the block for a crontab.

    Raises:
        CronUnfitError: The interval, a path or the length does not fit.
    """
    lines = []
    for entry in entries(every_s, jitter_s=call.jitter_s(every_s)):
        # cron turns a bare % into a line break, whatever stands around it
        words = call.argv(stays_s=_stays_s(every_s), delay_s=entry.delay_s)
        command = shlex.join(words).replace("%", r"\%")
        _check_length(command)
        lines.append(f"{entry.fields} {command}")
    return Block(call.mark, tuple(lines))


def scrontab_block(call: TickCall, *, every_s: int) -> Block:
    """Return the block for a scrontab; its ticks are small jobs on compute nodes.

    Raises:
        CronUnfitError: The interval is below a minute, or a path does not fit.
    """
    if every_s < MINUTE_S:
        raise CronUnfitError(
            f"a scrontab cannot start something every {every_s} s. Nothing was "
            f"installed; use a minute or more."
        )
    (entry,) = entries(every_s, jitter_s=call.jitter_s(every_s))
    stays_s = min(_stays_s(every_s), _SCRON_STAYS_S)
    command = shlex.join(call.argv(stays_s=stays_s, delay_s=entry.delay_s))
    if "$" in command:  # scrontab puts its own variables in, quoted or not
        raise CronUnfitError(
            f"{call.state} or another path holds a $, which scrontab expands. Nothing "
            f"was installed; choose other paths."
        )
    options = (
        "--job-name=freetrain-tick --nodes=1 --ntasks=1",
        f"--time={_SCRON_LIMIT_MIN} --output=/dev/null",
    )
    lines = (*(f"#SCRON {words}" for words in options), f"{entry.fields} {command}")
    return Block(call.mark, lines)


def unit_name(call: TickCall) -> str:
    """Return the name of the systemd units, without their suffix."""
    return f"freetrain-{call.mark}"


def unit_files(call: TickCall, *, every_s: int) -> Mapping[str, str]:
    """Return the systemd user units by file name.

    Raises:
        CronUnfitError: The interval is too short or long, or a path does not fit.
    """
    if not SHORTEST_S <= every_s <= LONGEST_S:
        raise CronUnfitError(
            f"a tick every {every_s} s is not offered. Nothing was installed; use "
            f"{SHORTEST_S}s to 60min."
        )
    name = unit_name(call)
    words = " ".join(map(_unit_word, call.argv(stays_s=_stays_s(every_s))))
    service = (
        "[Unit]",
        "Description=FreeTrain: one tick of the broker",
        "[Service]",
        "Type=oneshot",
        f"ExecStart={words}",
    )
    timer = (
        "[Unit]",
        "Description=FreeTrain: ticks of the broker",
        "[Timer]",
        f"OnActiveSec={call.jitter_s(every_s)}s",
        f"OnUnitActiveSec={every_s}s",
        "AccuracySec=1s",
        "[Install]",
        "WantedBy=timers.target",
    )
    return {
        f"{name}.service": "\n".join(service) + "\n",
        f"{name}.timer": "\n".join(timer) + "\n",
    }


def _stays_s(every_s: int) -> int:
    return every_s - _BEFORE_NEXT_S


def _unit_word(word: str) -> str:
    """Quote *word* for ExecStart, where % and $ mean something even in quotes.

    Source: systemd.service(5), "COMMAND LINES"; systemd.unit(5), "SPECIFIERS".
    """
    inside = word.replace("%", "%%").replace("$", "$$").replace('"', r"\"")
    return f'"{inside}"'


def _check_length(command: str) -> None:
    length = len(command.encode("utf-8", "surrogateescape"))
    if length > LONGEST_COMMAND_BYTES:
        raise CronUnfitError(
            f"the command is {length} bytes long, and cron takes "
            f"{LONGEST_COMMAND_BYTES}. Nothing was installed; use --kind systemd, or "
            f"shorter paths."
        )
