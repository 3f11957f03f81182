"""The demo's three trainers and its site, as a user would write them."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from freetrain.site.settings import (
    HoleSettings,
    LeaseSettings,
    PlannerSettings,
    Site,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

MOST_NODES = 4
CHUNK_S = 0.010
EPOCHS = 15
_T_FWD_S = 30.0
_MARGIN_S = 2.0
_LONGEST_S = 240.0


@dataclass(frozen=True, slots=True)
class DemoTrainer:
    """One of the three.

    Attributes:
        name: Its name.
        seed: Of its weights and of the order of its samples.
        epochs: How long it trains.
    """

    name: str
    seed: int
    epochs: int = EPOCHS

    def command(self, *, chunk_s: float) -> list[str]:
        """Return the program that it runs."""
        told = {"seed": self.seed, "epochs": self.epochs, "chunk-s": chunk_s}
        words = [word for k, v in told.items() for word in (f"--{k}", str(v))]
        return [sys.executable, "-m", "freetrain.demo.train", *words]

    def job_toml(self, *, mpirun: Path, environment: Mapping[str, str]) -> str:
        """Return its job file.

        Args:
            mpirun: What starts its worlds.
            environment: Variables for it.
        """
        speeds = {1: 500.0, 2: 950.0, 3: 1_350.0, MOST_NODES: 1_700.0}
        return (
            f"name = {_text(self.name)}\n"
            f"command = {json.dumps(self.command(chunk_s=CHUNK_S))}\n"
            f"environment = {_table(environment)}\n"
            f"scaling = {{ "
            + ", ".join(f'"{nodes}" = {speed}' for nodes, speed in speeds.items())
            + f" }}\n\n[nodes]\nmin = 1\nmax = {MOST_NODES}\n\n"
            f"[launch]\nexecutable = {_text(str(mpirun))}\nthreads = 1\n\n"
            '[checkpoint]\nevery = "2s"\n\n[restart]\nwait = "1s"\n\n'
            '[costs]\ngrow = "2s"\nshrink = "2s"\nstart = "2s"\n'
        )


TRAINERS = (
    DemoTrainer("ada", 1),
    DemoTrainer("ben", 2),
    DemoTrainer("cem", 3),
)


def demo_site(state_directory: Path) -> Site:
    """Return the settings of the demo's site: its holes are short."""
    return Site(
        state_directory=state_directory,
        lease=LeaseSettings(
            partition="freetrain", shortest_s=60.0, longest_s=_LONGEST_S
        ),
        holes=HoleSettings(margin_s=_MARGIN_S),
        planner=PlannerSettings(t_fwd_s=_T_FWD_S),
    )


def _text(value: str) -> str:
    """Write a TOML string; JSON's escapes are TOML's too."""
    return json.dumps(value)


def _table(values: Mapping[str, str]) -> str:
    pairs = (f"{key} = {_text(value)}" for key, value in values.items())
    return f"{{ {', '.join(pairs)} }}"
