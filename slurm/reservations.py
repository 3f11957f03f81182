"""Reservations, from ``scontrol show reservations``."""

from __future__ import annotations

from slurm.fields import check_whole, read_records
from slurm.records import Reservation
from slurm.values import text_or_empty, unix_time, words

_NONE = "No reservations in the system"


def reservations_argv() -> list[str]:
    """Return the command that shows every reservation."""
    return ["scontrol", "--all", "--oneliner", "show", "reservations"]


def parse_reservations(text: str) -> tuple[Reservation, ...]:
    """Return the reservations that ``scontrol show reservations`` told.

    Raises:
        UnreadableOutputError: Not such an answer, empty, or cut short.
    """
    command = "scontrol show reservations"
    check_whole(text, command)
    if text.strip() == _NONE:
        return ()
    return read_records(text, "ReservationName", command=command, read=_reservation)


def _reservation(fields: dict[str, str], record: str) -> Reservation:
    del record
    start_s = unix_time(fields["StartTime"])
    if start_s is None:
        raise ValueError("a reservation without a start")
    return Reservation(
        name=fields["ReservationName"],
        start_s=start_s,
        end_s=unix_time(fields["EndTime"]),
        nodes=text_or_empty(fields["Nodes"]),
        flags=frozenset(words(fields["Flags"])),
        users=words(fields["Users"]),
        accounts=words(fields["Accounts"]),
        partition=text_or_empty(fields["PartitionName"]),
    )
