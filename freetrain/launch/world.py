"""A world that runs, and what starts one: the interface that agents work with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from freetrain.broker.lease import LeaseKey
    from freetrain.exchange.assigned import Assigned
    from freetrain.jobfile.job import TrainerJob


class World(Protocol):
    """The processes of one generation, as the head of it sees them.

    Contract, checked for every launcher by ``tests/launch``: none of the methods
    blocks, and each may be called at any time, also after the world ended.
    """

    @property
    def pid(self) -> int:
        """The launcher's process, the leader of a session of its own."""
        ...

    def poll(self) -> int | None:
        """The launcher's exit status, negative for a signal; None while it runs."""
        ...

    def ask_to_stop(self) -> None:
        """Ask the program to commit and end: control file and signal; once.

        Raises:
            OSError: The control file could not be written; the signal was sent.
        """
        ...

    def lingers(self) -> bool:
        """Tell whether a process of the launcher's session is left on this node."""
        ...

    def kill(self) -> None:
        """Kill every process of the launcher's session on this node, now.

        What it started on other nodes is for the agents there to sweep.
        """
        ...


class Launcher(Protocol):
    """Starts worlds."""

    def launch(
        self,
        job: TrainerJob,
        assigned: Assigned,
        *,
        after: int | None,
        is_forked: bool,
    ) -> World:
        """Start the world of *assigned*; returns as soon as its launcher runs.

        Args:
            job: The trainer.
            assigned: Its generation, with one member or more.
            after: The generation that the world waits for before it trains
                (``FREETRAIN_AFTER``), None where it need not.
            is_forked: Whether each of its nodes has a spare for its ranks.

        Raises:
            CannotLaunchError: It cannot be started as things are; the message is
                for the user. Nothing was started.
            OSError: A file of it could not be written. Nothing was started.
        """
        ...

    def start_spare(
        self, job: TrainerJob, assigned: Assigned, lease: LeaseKey
    ) -> World:
        """Start a spare on this node, that of *lease*; asked to stop it makes no more.

        Args:
            job: The trainer.
            assigned: A generation of its that *lease* is a member of.
            lease: This node's.

        Raises:
            CannotLaunchError: It cannot be started as things are.
            OSError: A file of it could not be written.
        """
        ...
