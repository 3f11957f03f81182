"""Count the files whose functions run during one tick and one replay.

The commands run as users run them, each in a process of its own: a tick that asks
the fake Slurm for leases, the same tick under the policy lookahead, and a replay of
a day of the sample with its report. A file counts where one of its functions was
called; code that runs while a module is imported does not count. Jinja2 runs
templates as code too: they count apart from the Python files.

``python -m tests.bench traced`` prints the counts by package,
``python -m tests.bench.traced --json`` the files.
"""

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

_TOP = Path(__file__).resolve().parents[2]
_PACKAGES = ("freetrain", "milp", "slurm", "logs")
_TEMPLATES = "templates"
_LOOKAHEAD = '[planner]\npolicy = "lookahead"\n'
_SITE = 'state_directory = "state"\n[lease]\npartition = "freetrain"\n'
_JOB = 'name = "digits"\ncommand = "true"\n[nodes]\nmax = 2\n'
_SAMPLE = str(_TOP / "logs" / "samples" / "week-512.swf")
_REPLAY = ("replay", _SAMPLE, "--nodes", "64", "--days", "1", "--policy", "freetrain")


class _Tracer:
    """Notes the file of every Python function that is called outside imports."""

    def __init__(self) -> None:
        self.paths: set[str] = set()
        self._local = threading.local()

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if code.co_name == "<module>" and event in {"call", "return"}:
            self._importing += 1 if event == "call" else -1
        elif event == "call" and not self._importing:
            self.paths.add(code.co_filename)

    @property
    def _importing(self) -> int:
        return getattr(self._local, "importing", 0)

    @_importing.setter
    def _importing(self, depth: int) -> None:
        self._local.importing = depth


def lines(shared: Path) -> Iterator[str]:
    """Yield the number of Python files by package, a column for each command."""
    del shared
    found = traced()
    counts = {
        case: Counter(_package(file) for file in files) for case, files in found.items()
    }
    packages = sorted(
        {package for count in counts.values() for package in count} - {_TEMPLATES}
    )
    rows = [(name, *(count[name] for count in counts.values())) for name in packages]
    rows += [
        ("Python files", *(n.total() - n[_TEMPLATES] for n in counts.values())),
        (_TEMPLATES, *(count[_TEMPLATES] for count in counts.values())),
    ]
    for name, *cells in [("files run through", *counts), *rows]:
        yield f"{name:<26}" + "".join(f"{cell!s:>18}" for cell in cells)


def _package(file: str) -> str:
    return file.rpartition("/")[0] if file.endswith(".py") else _TEMPLATES


def traced() -> dict[str, list[str]]:
    """Return, by command, the files of the repository that it runs through."""
    cases = {"tick": _tick, "tick, look-ahead": _tick_lookahead, "replay": _replay}
    found = {}
    for case, run in cases.items():
        with tempfile.TemporaryDirectory() as name:
            found[case] = run(Path(name))
    return found


def _tick(folder: Path, planner: str = "") -> list[str]:
    # Imported here: the traced process must not import it.
    from tests.fakes.slurm.installing import install  # noqa: PLC0415

    programs = folder / "slurm"
    programs.mkdir()
    fake = install(programs)
    (folder / "freetrain.toml").write_text(_SITE + planner, encoding="utf-8")
    (folder / "job.toml").write_text(_JOB, encoding="utf-8")
    _files_of(folder, "submit", "job.toml", path=fake.environ["PATH"])
    files = _files_of(folder, "tick", path=fake.environ["PATH"])
    if not fake.calls("sbatch"):
        raise ChildProcessError("the tick asked for no lease")
    return files


def _tick_lookahead(folder: Path) -> list[str]:
    return _tick(folder, _LOOKAHEAD)


def _replay(folder: Path) -> list[str]:
    return _files_of(folder, *_REPLAY, "--out", "report")


def _files_of(folder: Path, *words: str, path: str = os.defpath) -> list[str]:
    """Run ``freetrain`` with *words* in *folder*; return the files it runs through."""
    out = folder / "files.json"
    environ = {"PATH": path, "HOME": str(folder), "PYTHONPATH": str(_TOP)}
    argv = [sys.executable, "-m", "tests.bench.traced", "--run", str(out), *words]
    ran = subprocess.run(  # noqa: S603 - this very file
        argv, cwd=folder, env=environ, check=False, capture_output=True, text=True
    )
    if ran.returncode:
        raise ChildProcessError(f"{argv} ended with {ran.returncode}: {ran.stderr}")
    files: list[str] = json.loads(out.read_text(encoding="utf-8"))
    return files


def _run_traced(out: Path, words: list[str]) -> int:
    """Be ``freetrain`` with *words*, and write the files that it runs through."""
    sys.argv = ["freetrain", *words]
    program = importlib.import_module("freetrain.__main__")
    tracer = _Tracer()
    threading.setprofile(tracer)
    sys.setprofile(tracer)
    try:
        code: int = program.run()
    finally:
        sys.setprofile(None)
    ours = (os.path.relpath(path, _TOP) for path in tracer.paths)
    files = sorted(path for path in ours if path.split("/")[0] in _PACKAGES)
    out.write_text(json.dumps(files), encoding="utf-8")
    return code


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.traced")
    parser.add_argument("--json", action="store_true", help="the files, by command")
    parser.add_argument("--run", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.run:
        return _run_traced(Path(asked.run[0]), asked.run[1:])
    text = json.dumps(traced(), indent=1) if asked.json else "\n".join(lines(_TOP))
    sys.stdout.write(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
