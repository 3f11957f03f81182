"""Slurm's accounting for a cluster of tests: a database, slurmdbd, accounts and users.

Only clusters with the variant ``limits`` have it, and only where Debian's packages
``slurmdbd`` and ``mariadb-server`` are installed.
"""

import os
import pwd
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.cluster.machine import plugin_folder
from tests.cluster.settings import CLUSTER_NAME, PROGRAMS
from tests.cluster.waiting import wait_for

ACCOUNT = "physics"
SISTER = "chemistry"
ABOVE = "science"
"""The account above both."""

COLLEAGUE = "games"
"""Others' jobs are of this user, of the same account as ours unless they say else."""

_PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
_PASSWORD = "freetrain-test"  # noqa: S105 -- of a database that lives for one test

Start = Callable[[str, list[str]], None]
"""Starts a daemon by name and command line."""


def why_not() -> str:
    """Return why there can be no accounting here, empty where there can."""
    missing = [
        name
        for name in ("mariadbd", "mariadb-install-db", "mariadb", "slurmdbd")
        if shutil.which(name, path=_PATH) is None
    ]
    if not missing:
        return ""
    return f"{', '.join(missing)} not installed: apt install slurmdbd mariadb-server"


def start_accounting(folder: Path, ports: tuple[int, int], start: Start) -> None:
    """Start the database and slurmdbd of the cluster in *folder*, and add its accounts.

    Args:
        folder: The cluster's.
        ports: Of the database and of slurmdbd.
        start: Starts a daemon.
    """
    data, socket = folder / "database", folder / "database" / "socket"
    data.mkdir(mode=0o700)
    os.chown(data, *_ids("mysql"))
    as_mysql = ["setpriv", "--reuid=mysql", "--regid=mysql", "--clear-groups"]
    _run(
        folder,
        "mariadb-install-db",
        "--no-defaults",
        "--user=mysql",
        f"--datadir={data}",
    )
    small = ("--innodb-buffer-pool-size=32M", "--innodb-flush-log-at-trx-commit=0")
    here = ("--bind-address=127.0.0.1", f"--port={ports[0]}", f"--socket={socket}")
    place = (f"--datadir={data}", f"--pid-file={data}/pid")
    start("mariadbd", [*as_mysql, "mariadbd", "--no-defaults", *place, *here, *small])
    client = ("mariadb", "--no-defaults", f"--socket={socket}", "--user=root")
    wait_for("the database", lambda: _answers(folder, *client, "--execute=select 1"))
    grant = f"grant all on *.* to slurm@'127.0.0.1' identified by '{_PASSWORD}'"
    _run(folder, *client, f"--execute={grant}")
    conf = folder / "slurmdbd.conf"
    conf.write_text(_slurmdbd_conf(folder, ports), encoding="ascii")
    conf.chmod(0o600)
    # Under a name in the folder, by which it is known when it is to end.
    program = folder / "slurmdbd"
    program.symlink_to(shutil.which("slurmdbd", path=_path(folder)) or "slurmdbd")
    start("slurmdbd", ["env", f"SLURM_CONF={folder}/slurm.conf", str(program), "-D"])
    wait_for(
        "slurmdbd", lambda: _answers(folder, *_sacctmgr(folder, "show", "cluster"))
    )
    sacctmgr(folder, "add", "cluster", CLUSTER_NAME)
    sacctmgr(folder, "add", "account", ABOVE)
    for account in (ACCOUNT, SISTER):
        sacctmgr(folder, "add", "account", account, f"parent={ABOVE}")
    for user in (pwd.getpwuid(os.getuid()).pw_name, COLLEAGUE):
        sacctmgr(folder, "add", "user", user, f"account={ACCOUNT}")
        change = ("modify", "user", user, "set", f"DefaultAccount={ACCOUNT}")
        sacctmgr(folder, *change)  # Slurm makes root one of its own
    sacctmgr(folder, "add", "user", COLLEAGUE, f"account={SISTER}")


def sacctmgr(folder: Path, *words: str) -> None:
    """Change the accounts of the cluster in *folder*."""
    _run(folder, *_sacctmgr(folder, *words))


def _sacctmgr(folder: Path, *words: str) -> tuple[str, ...]:
    return ("env", f"SLURM_CONF={folder}/slurm.conf", "sacctmgr", "-i", *words)


def _slurmdbd_conf(folder: Path, ports: tuple[int, int]) -> str:
    settings = {
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={folder}/munge/socket",
        "DbdHost": "localhost",
        "DbdPort": ports[1],
        "SlurmUser": "root",
        "StorageType": "accounting_storage/mysql",
        "StorageHost": "127.0.0.1",
        "StoragePort": ports[0],
        "StorageUser": "slurm",
        "StoragePass": _PASSWORD,
        "PidFile": folder / "run" / "slurmdbd.own-pid",
        "LogFile": folder / "log" / "slurmdbd.log",
    }
    plugins = plugin_folder(_programs(folder))
    if plugins is not None:
        settings["PluginDir"] = plugins
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def _ids(user: str) -> tuple[int, int]:
    found = pwd.getpwnam(user)
    return found.pw_uid, found.pw_gid


def _run(folder: Path, *argv: str) -> None:
    subprocess.run(  # noqa: S603 -- a test's own words, never a shell
        argv, check=True, capture_output=True, text=True, env={"PATH": _path(folder)}
    )


def _answers(folder: Path, *argv: str) -> bool:
    done = subprocess.run(  # noqa: S603 -- as above
        argv, check=False, capture_output=True, env={"PATH": _path(folder)}
    )
    return done.returncode == 0


def _programs(folder: Path) -> Path | None:
    """Return where the cluster's release has its programs; None for those installed."""
    text = (folder / PROGRAMS).read_text(encoding="utf-8")
    return Path(text) if text else None


def _path(folder: Path) -> str:
    programs = _programs(folder)
    return _PATH if programs is None else f"{programs}:{_PATH}"
