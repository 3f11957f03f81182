"""Limits on the jobs of accounts, users and QOS, as Slurm's accounting has them.

``scontrol show assoc_mgr`` tells them from slurmctld's memory: all accounts, and the
user asked for. A site's PrivateData may hide the accounts; then ``sacctmgr`` is asked,
which has rules of its own. What QOS allow each user or account shows in
``sacctmgr show qos``, and in slurmctld only once such a job was there.

Slurm enforces limits only where AccountingStorageEnforce says so
(``ClusterConfig.enforces_limits``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from slurm.errors import UnreadableOutputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence


@dataclass(frozen=True, slots=True)
class Association:
    """An account, or a user in an account.

    Attributes:
        account: Its name.
        user: The user's name; empty for the account itself.
        partition: The only partition where it counts; empty for all.
        parent: The account above this account; empty for none, and for users.
        is_default: Whether it is the user's account for jobs that name none.
        limits: By Slurm's word for it, for example ``{"GrpTRES=node": 6}``. Those of an
            account that begin with Max bind each of its users, and are theirs, too.
        default_qos: The QOS of the user's jobs that name none; empty where unknown.
    """

    account: str
    user: str = ""
    partition: str = ""
    parent: str = ""
    is_default: bool = False
    limits: Mapping[str, int] = field(default_factory=dict)
    default_qos: str = ""


@dataclass(frozen=True, slots=True)
class Qos:
    """A quality of service.

    Attributes:
        name: Its name.
        limits: As those of an association. Names that end with PU or PA, or TRES of
            such, are for each user or account.
    """

    name: str
    limits: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AccountingLimits:
    """What is known of a site's limits; nothing where Slurm does not show it.

    Attributes:
        associations: The accounts, and the associations of one user.
        qos: Every QOS.
    """

    associations: tuple[Association, ...] = ()
    qos: tuple[Qos, ...] = ()

    @property
    def has_accounts(self) -> bool:
        """Whether the accounts themselves are known, not only those of the user."""
        return any(not found.user for found in self.associations)


UNKNOWN_LIMITS = AccountingLimits()

_LONGEST_NUMBER = 15
_ALL_JOBS = ("GrpJobs", "GrpSubmitJobs", "GrpWall")
_ALL_TRES = ("GrpTRES", "GrpTRESMins", "GrpTRESRunMins")
_USERS_JOBS = ("MaxJobs", "MaxSubmitJobs")
_EACH_JOBS = ("MaxJobsPU", "MaxSubmitJobsPU", "MaxJobsPA", "MaxSubmitJobsPA")
_EACH_TRES = ("MaxTRESPU", "MaxTRESPA")
_COUNTS = frozenset((*_ALL_JOBS, *_USERS_JOBS, *_EACH_JOBS))
_TRES = frozenset((*_ALL_TRES, *_EACH_TRES))
"""Limits on jobs together; those on a single job are none of ours to count."""


def _limits(values: Iterable[tuple[str, str]]) -> dict[str, int]:
    """Return the limits that are set, from *values* such as ``GrpTRES``, ``node=6``.

    ``N`` and nothing are no limit; slurmctld adds what is used, as in ``6(3)``.
    """
    found: dict[str, int] = {}
    for name, text in values:
        if name in _COUNTS:
            found |= _limit(name, text)
        elif name in _TRES:
            for item in text.split(","):
                tres, _, most = item.partition("=")
                found |= _limit(f"{name}={tres}", most)
    return found


def _limit(name: str, text: str) -> dict[str, int]:
    number = text.partition("(")[0]
    is_number = number.isascii() and number.isdecimal()
    return {name: int(number)} if is_number and len(number) <= _LONGEST_NUMBER else {}


# What slurmctld tells.


def assoc_mgr_argv(user: str) -> tuple[str, ...]:
    """Return the command that shows all accounts, *user*'s associations, and all QOS.

    Raises:
        ValueError: A name that Slurm would read as several, or as none.
    """
    _check_user(user)
    what = ("show", "assoc_mgr", f"users={user}", "flags=assoc,qos")
    return ("scontrol", "--oneliner", *what)


def user_argv(user: str) -> tuple[str, ...]:
    """Return the command that shows *user*'s own record, which Slurm never hides.

    Raises:
        ValueError: A name that Slurm would read as several, or as none.
    """
    _check_user(user)
    return (
        "scontrol",
        "--oneliner",
        "show",
        "assoc_mgr",
        f"users={user}",
        "flags=users",
    )


def is_operator(text: str, user: str) -> bool:
    """Tell whether *user* sees the jobs of all, by what ``user_argv`` printed.

    Operators and administrators do. Coordinators see those of their accounts, so that
    they cannot know what others wait for.
    """
    return any(
        (found := _ADMIN_LEVEL.match(line)) is not None and found["user"] == user
        for line in text.splitlines()
    )


_ADMIN_LEVEL = re.compile(
    r"UserName=(?P<user>.*)\(\d+\) .*AdminLevel=(?:Operator|Administrator)$"
)


def _check_user(user: str) -> None:
    if not user or "," in user or "=" in user:
        raise ValueError(f"Slurm cannot look for a user named {user!r}")


_ASSOC_MGR = "scontrol show assoc_mgr"
_TITLE = "Current Association Manager state"
_QOS = re.compile(r"QOS=(.*?)\(\d+\) ")
_PAIR = re.compile(r"(?:^|[ {])([A-Za-z]+)=([^ {}]*)")


def parse_assoc_mgr(text: str) -> AccountingLimits:
    """Return what ``scontrol show assoc_mgr`` printed, a line for each record.

    Raises:
        UnreadableOutputError: Not such an answer, or cut short.
    """
    if not text.startswith(_TITLE) or not text.endswith("\n"):
        why = "not the state of the association manager, or cut short"
        raise UnreadableOutputError(_ASSOC_MGR, 1, text[:200], why)
    associations, qos = [], []
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith("ClusterName="):
            associations.append(_association(number, line))
        elif line.startswith("QOS="):
            qos.append(_told_qos(number, line))
    return AccountingLimits(tuple(associations), tuple(qos))


_MARKS = ("Account=", " UserName=", " Partition=", " ParentAccount=", " DefAssoc=", " ")


def _association(number: int, line: str) -> Association:
    # Names may have blanks, so each value ends where the next field begins.
    places = [line.find(" ")]
    for mark in _MARKS:
        places.append(line.find(mark, places[-1]))
        if places[-1] < 0:
            why = f"an association without {mark.strip()}"
            raise UnreadableOutputError(_ASSOC_MGR, number, line, why)
        places[-1] += len(mark)
    account, user, partition, parent, default = (
        line[start : end - len(mark)]
        for start, end, mark in zip(places[1:], places[2:], _MARKS[1:], strict=False)
    )
    return Association(
        account,
        user=_without_number(user),
        partition=partition.partition(" ")[0],
        parent=_without_number(parent.rpartition(" ")[0]),
        is_default=default == "Yes",
        limits=_limits(_PAIR.findall(line)),
    )


def _without_number(name: str) -> str:
    """Return the name in ``ada(1000)``."""
    return name.rpartition("(")[0] if name.endswith(")") else name


def _told_qos(number: int, line: str) -> Qos:
    found = _QOS.match(line)
    if found is None:
        raise UnreadableOutputError(_ASSOC_MGR, number, line, "no QOS")
    # Account and user limits are repeated for each that has such jobs.
    return Qos(found[1], _limits(_PAIR.findall(line)))


# What slurmdbd tells.

_ASSOCIATION_COLUMNS = (*_ALL_JOBS, *_ALL_TRES, *_USERS_JOBS)
_QOS_COLUMNS = (*_ALL_JOBS, *_ALL_TRES, *_EACH_JOBS, *_EACH_TRES)


def associations_argv(cluster: str) -> tuple[str, ...]:
    """Return the command that shows all associations of *cluster*.

    Raises:
        ValueError: A name that Slurm would read as several, or as none.
    """
    _check_user(cluster)
    columns = ("Account", "User", "Partition", "ParentName", *_ASSOCIATION_COLUMNS)
    what = ("show", "associations", f"cluster={cluster}", f"format={','.join(columns)}")
    return (*_SACCTMGR, *what)


def default_qos_argv(user: str, cluster: str) -> tuple[str, ...]:
    """Return the command that shows which QOS *user*'s jobs on *cluster* may be of.

    Raises:
        ValueError: A name that Slurm would read as several, or as none.
    """
    _check_user(user)
    _check_user(cluster)
    of = (f"cluster={cluster}", f"users={user}")
    what = ("show", "associations", *of, "format=Account,Partition,DefaultQOS,QOS")
    return (*_SACCTMGR, *what)


_SACCTMGR = ("sacctmgr", "--noheader", "--parsable2", "--readonly")
QOS_ARGV = (*_SACCTMGR, "show", "qos", f"format={','.join(('Name', *_QOS_COLUMNS))}")
"""Shows the limits of every QOS."""


def parse_associations(text: str, user: str) -> tuple[Association, ...]:
    """Return the accounts and *user*'s associations that sacctmgr printed.

    Raises:
        UnreadableOutputError: Not such an answer.
    """
    return tuple(
        Association(
            account,
            user=of_user,
            partition=partition,
            parent=parent,
            limits=_limits(zip(_ASSOCIATION_COLUMNS, values, strict=True)),
        )
        for account, of_user, partition, parent, *values in _rows(
            text, 4 + len(_ASSOCIATION_COLUMNS)
        )
        if of_user in {"", user}
    )


def parse_default_qos(text: str) -> dict[tuple[str, str], str]:
    """Return the QOS of jobs that name none, by account and partition.

    It is the default of the association, or of one above, which Slurm shows here; or
    the only one that is allowed. Source: assoc_mgr_get_default_qos_info of Slurm 22.05.

    Raises:
        UnreadableOutputError: Not such an answer.
    """
    return {
        (account, partition): default or ("" if "," in allowed else allowed)
        for account, partition, default, allowed in _rows(text, 4)
    }


def parse_qos(text: str) -> tuple[Qos, ...]:
    """Return the QOS that sacctmgr printed.

    Raises:
        UnreadableOutputError: Not such an answer.
    """
    return tuple(
        Qos(name, _limits(zip(_QOS_COLUMNS, values, strict=True)))
        for name, *values in _rows(text, 1 + len(_QOS_COLUMNS))
    )


def _rows(text: str, columns: int) -> Iterator[Sequence[str]]:
    for number, line in enumerate(text.splitlines(), start=1):
        values = line.split("|")
        if len(values) != columns:
            why = f"expected {columns} values"
            raise UnreadableOutputError("sacctmgr", number, line, why)
        yield values
