"""FreeTrain of several users at once: each has a state directory and ticks of its own.

Only root can be several users.
"""

import os
import pwd
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tests.cluster.cluster import Cluster
from tests.cluster.settings import Variant

TOP = Path(__file__).parents[2]
USERS = (
    *("news", "uucp", "daemon", "bin", "sys"),
    *("man", "lp", "mail", "proxy", "backup"),
)
"""Ten users whom every machine has."""

_SETTINGS = """\
state_directory = "{folder}/state"
[lease]
{lease}
longest = "15min"
"""
_LEASE = {
    False: 'partition = "freetrain"\nmode = "preempt"',
    True: 'partition = "main"\nmode = "yield"',
}
_JOB = """\
name = "a"
command = "sleep 900"
elastic = false
[nodes]
max = {most}
[launch]
launcher = "custom"
command = ["env"]
"""


def python_for_all(folder: Path, *, top: Path = TOP) -> Path | None:
    """Return a Python below *folder* that every user may run; None where there is none.

    Ours may lie in root's home, which others may not enter.

    Args:
        folder: Where to put it.
        top: Of a working tree, whose packages it imports.
    """
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    base = shutil.which(version, path="/usr/bin:/usr/local/bin")
    if base is None:
        return None
    argv = [base, "-m", "venv", "--without-pip", str(folder / "venv")]
    subprocess.run(argv, check=True)  # noqa: S603
    packages = next((folder / "venv" / "lib").iterdir()) / "site-packages"
    paths = (top, Path(msgspec.__file__).parents[1])
    (packages / "ours.pth").write_text("".join(f"{path}\n" for path in paths))
    return folder / "venv" / "bin" / "python"


@dataclass(slots=True)
class UserBroker:
    """One user's FreeTrain, whose ticks follow each other as from cron.

    Attributes:
        tick: What the loop of ticks runs, again and again.
    """

    cluster: Cluster
    user: str
    folder: Path
    python: Path
    tick: str = "$FT tick --follow-up 40s; sleep 1"
    ticks: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        self.folder.mkdir(mode=0o700)
        lease = _LEASE[Variant.SHARED in self.cluster.variants]
        settings = _SETTINGS.format(folder=self.folder, lease=lease)
        (self.folder / "freetrain.toml").write_text(settings)
        for path in (self.folder, *self.folder.iterdir()):
            os.chown(path, self.uid, -1)

    @property
    def uid(self) -> int:
        return pwd.getpwnam(self.user).pw_uid

    @property
    def state(self) -> Path:
        """The state directory."""
        return self.folder / "state"

    def _start(self, words: str) -> subprocess.Popen[bytes]:
        """Start a shell command of the user's; ``$FT`` is the command freetrain."""
        as_user = [f"--reuid={self.user}", "--regid=nogroup", "--clear-groups"]
        environ = self.cluster.environ | {
            "HOME": str(self.folder),
            "FREETRAIN_CONFIG": str(self.folder / "freetrain.toml"),
            "FT": f"{self.python} -m freetrain",
        }
        with (self.folder / "said.txt").open("ab") as said:
            return subprocess.Popen(  # noqa: S603
                ["setpriv", *as_user, "/bin/sh", "-c", words],  # noqa: S607
                cwd=self.folder,
                env=environ,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )

    def submit(self, *, most: int = 8) -> None:
        """Submit a trainer that takes up to *most* nodes for as long as it may."""
        job = self.folder / "job.toml"
        job.write_text(_JOB.format(most=most))
        os.chown(job, self.uid, -1)
        assert self._start("$FT submit job.toml").wait(120) == 0, self.said()

    def begin(self) -> None:
        """Tick from now on, each once the last is over, until this process ends."""
        self.ticks = self._start(
            f"while test -d /proc/{os.getpid()}; do {self.tick}; done"
        )

    def freeze(self) -> None:
        """Tick no more, as where a login node hangs."""
        if self.ticks is not None:
            os.killpg(self.ticks.pid, signal.SIGSTOP)

    def stop(self) -> None:
        """Tick no more, as where a login node dies."""
        if self.ticks is not None:
            os.killpg(self.ticks.pid, signal.SIGKILL)
            self.ticks.wait()
            self.ticks = None

    def said(self) -> str:
        """Return what commands and ticks said last."""
        log = self.state / "tick.log"
        text = log.read_text() if log.exists() else ""
        said = self.folder / "said.txt"
        return (said.read_text()[-3000:] if said.exists() else "") + text[-3000:]
