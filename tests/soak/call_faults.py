"""A Python whose ticks and agents fail a single file call, once, when they are told to.

``make_python`` makes an environment beside the one that runs the tests. In it, ticks
and agents count their calls on files of one folder, and look from time to time for an
order; the first to find it takes it (by rename), and fails the call that it names. So
one call of one process fails, wherever the process is in its life, and no code of
FreeTrain knows of it. What was failed is appended to a file.
"""

import os
import sys
import sysconfig
from pathlib import Path
from random import Random

ERRORS = ("EIO", "ESTALE", "ENOENT", "EACCES", "ENOSPC")
KINDS = ("agent", "tick")
_MOST_SKIPPED = {"agent": 400, "tick": 60}
"""A tick makes some hundred calls, an agent about as many in some seconds."""

_DONE = "done"

_INJECTOR = """\
import builtins
import errno
import io
import os
import sys

FOLDER, ORDERS = {folder!r}, {orders!r}
NAMES = ("link", "listdir", "lstat", "mkdir", "open", "rename", "replace", "scandir")
NAMES += ("stat", "unlink", "utime")
LOOK_EVERY = 8
real = {{name: getattr(os, name) for name in NAMES}}
real_open = io.open


def kind():
    words = sys.orig_argv
    if "freetrain.agent" in words and "sweep" not in words:
        return "agent"
    return "tick" if "tick" in words and "freetrain" in words else ""


class Injector:
    def __init__(self, what):
        self.order = os.path.join(ORDERS, what)
        self.what, self.count, self.left, self.error = what, 0, None, ""

    def call(self, name, path):
        if not isinstance(path, (str, bytes, os.PathLike)):
            return
        text = os.fsdecode(path)
        if not text.startswith(FOLDER) or text.startswith(ORDERS):
            return
        self.count += 1
        if self.left is None:
            if self.count % LOOK_EVERY == 1:
                self.take()
            return
        self.left -= 1
        if self.left < 0:
            self.left, said = None, self.error
            with real_open(os.path.join(ORDERS, {done!r}), "a") as done:
                done.write(" ".join((self.what, said, name, text)) + chr(10))
            number = getattr(errno, said)
            raise OSError(number, os.strerror(number), text)

    def take(self):
        mine = self.order + "." + str(os.getpid())
        try:
            real["rename"](self.order, mine)
            with real_open(mine) as order:
                self.error, left = order.read().split()
        except (OSError, ValueError):
            return
        self.left = int(left)


def wrapped(injector, name, function):
    def call(path, *more, **named):
        injector.call(name, path)
        return function(path, *more, **named)

    return call


if kind():
    injector = Injector(kind())
    for name in NAMES:
        setattr(os, name, wrapped(injector, name, real[name]))
    io.open = builtins.open = wrapped(injector, "open", real_open)
    # asked whether they support descriptors, by identity
    for group in (os.supports_fd, os.supports_dir_fd, os.supports_follow_symlinks):
        group.update(getattr(os, name) for name in NAMES if real[name] in group)
"""


def make_python(folder: Path, *, watched: Path) -> Path:
    """Return a Python like this one, made in *folder*, for calls on files of *watched*.

    Orders stand in the folder ``orders`` of *folder*.
    """
    base = Path(sys.base_prefix) / "bin"
    packages = folder / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}"
    packages /= "site-packages"
    for made in (packages, folder / "bin", folder / "orders"):
        made.mkdir(parents=True)
    (folder / "pyvenv.cfg").write_text(f"home = {base}\n", encoding="utf-8")
    python = folder / "bin" / "python"
    python.symlink_to(Path(sys.executable).resolve())
    text = _INJECTOR.format(
        folder=str(watched), orders=str(folder / "orders"), done=_DONE
    )
    (packages / "call_faults_injector.py").write_text(text, encoding="utf-8")
    ours = sysconfig.get_path("purelib")
    (packages / "soak.pth").write_text(
        f"import site; site.addsitedir({ours!r})\nimport call_faults_injector\n",
        encoding="utf-8",
    )
    return python


class CallFaults:
    """Orders to fail single calls, in the folder of a Python of ``make_python``."""

    def __init__(self, folder: Path) -> None:
        """Take the folder that ``make_python`` was given."""
        self._orders = folder / "orders"

    def order(self, kind: str, random: Random) -> str:
        """Have a process of *kind* fail a call; return the order, if none waits."""
        path = self._orders / kind
        if path.exists():
            return ""
        order = f"{random.choice(ERRORS)} {random.randrange(_MOST_SKIPPED[kind])}"
        new = path.with_suffix(".new")
        new.write_text(order, encoding="ascii")
        os.replace(new, path)  # noqa: PTH105 -- as the other side does
        return order

    def done(self) -> list[str]:
        """Return the failed calls: kind, error, function and path each."""
        path = self._orders / _DONE
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []
