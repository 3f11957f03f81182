"""A crontab of our own to play with: a program on disk, and what it misdoes."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from freetrain.cron import BackEnd, Programs, TickCall

PROGRAM = """\
#!{python}
import sys
from pathlib import Path

folder = Path("{folder}")
table, act = folder / "table", folder / "act"
words = sys.argv[1:]
wanted = act.read_text().split() if act.exists() else []
with (folder / "calls").open("a") as calls:
    calls.write(" ".join(words) + chr(10))
if "forbid" in wanted:
    sys.exit("You (u1) are not allowed to use this program (crontab)")
if "hang" in wanted:
    import time
    time.sleep(600)
if words == ["-l"]:
    reads = folder / "reads"
    reads.write_text(reads.read_text() + "r" if reads.exists() else "r")
    if "race" in wanted and reads.read_text() == "rr":
        table.write_bytes(b"1 2 3 4 5 somebody else\\n")
    if not table.exists():
        sys.exit("no crontab for u1")
    sys.stdout.buffer.write(table.read_bytes())
elif words == ["-r"]:
    table.unlink()
elif words == ["-"]:
    given = sys.stdin.buffer.read()
    table.write_bytes(given + b"# mine\\n" if "meddle" in wanted else given)
else:
    sys.exit("usage")
"""


SYSTEMCTL = """\
#!{python}
import sys
from pathlib import Path

folder, words = Path("{folder}"), sys.argv[1:]
state, units = folder / "timer-state", folder / ".config" / "systemd" / "user"
act = folder / "act"
wanted = act.read_text().split() if act.exists() else []
with (folder / "calls").open("a") as calls:
    calls.write(" ".join(words) + chr(10))
if "unreachable" in wanted or (words[1] == "enable" and "no-enable" in wanted):
    sys.exit("Failed to connect to bus: No medium found")
if words[1] == "enable":
    state.write_text("enabled active waiting")
elif words[1] == "disable":
    state.unlink(missing_ok=True)
elif words[1] == "show":
    found = state.read_text().split() if state.exists() else ["", "inactive", "dead"]
    load = "loaded" if (units / words[2]).exists() else "not-found"
    print("LoadState=" + load)
    for name, value in zip(("UnitFileState", "ActiveState", "SubState"), found):
        print(name + "=" + value)
    print("NeedDaemonReload=no")
"""


@dataclass(frozen=True, slots=True)
class FakeTable:
    """A fake ``crontab`` in a folder of its own.

    Attributes:
        folder: Has the program, its table and what was called.
    """

    folder: Path

    @property
    def environ(self) -> dict[str, str]:
        """Environment in which ``crontab`` is this program."""
        return {"PATH": f"{self.folder}:/usr/bin:/bin", "HOME": str(self.folder)}

    @property
    def table(self) -> bytes | None:
        """What it keeps, None for nothing."""
        path = self.folder / "table"
        return path.read_bytes() if path.exists() else None

    def keep(self, table: bytes) -> None:
        """Have it keep *table* from now on."""
        (self.folder / "table").write_bytes(table)

    def act(self, *acts: str) -> None:
        """Make it misbehave: forbid, hang, race, meddle."""
        (self.folder / "act").write_text(" ".join(acts))

    def calls(self) -> list[str]:
        """Return how it was called so far."""
        path = self.folder / "calls"
        return path.read_text().splitlines() if path.exists() else []


def install_fake(folder: Path, name: str = "crontab") -> FakeTable:
    """Write the program *name* into *folder*, which must exist.

    A ``systemctl`` keeps a timer's states in the file ``timer-state``, and looks for
    units below the folder, its HOME; it can be unreachable, or not enable.
    """
    path = folder / name
    program = SYSTEMCTL if name == "systemctl" else PROGRAM
    text = program.replace("{python}", sys.executable).replace("{folder}", str(folder))
    path.write_text(text)
    path.chmod(0o755)
    return FakeTable(folder)


def a_call(state: Path = Path("/home/u/.freetrain"), **changes: object) -> TickCall:
    """Return a call of the tick, with *changes* to it."""
    fields: dict[str, object] = {
        "python": Path("/opt/venv/bin/python"),
        "state": state,
        "config": Path("/home/u/freetrain.toml"),
        "variables": (("HOME", "/home/u"), ("PATH", "/opt/slurm/bin:/usr/bin:/bin")),
        "uid": 1000,
    }
    return TickCall(**(fields | changes))  # type: ignore[arg-type] # fields of TickCall


Kept = TypeVar("Kept", bound=BackEnd)


def a(kind: type[Kept], call: TickCall) -> Kept:
    """Return the back end *kind* for *call*, with no programs to run."""
    return kind(call, Programs({}), Path("/home/u/.config/systemd/user"))
