"""Change one place of the code at a time and see whether a test fails.

``python -m tests.mutants --count 100 --seed 1 --out mutants.jsonl``

The last commit is copied to a scratch folder with an environment of its own; the
working tree is never touched. There all quick tests run once under coverage, which
tells by line the tests that run it; then each mutant runs the tests of its line,
quickest first, until one fails. A line that only child processes run has the tests
of its module, or else of its package. A test that fails on the unchanged code too is
left out. Mutants are drawn by seed, uniformly over the lines that can be changed:
comparisons and conditions are turned round, ``and`` and ``or``, ``min`` and ``max``,
plus and minus swapped, numbers are off by one, statements are dropped.

Run again with the same arguments, it goes on where it was interrupted.
"""

import argparse
import ast
import copy
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.util import cache_from_source
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import coverage

PACKAGES = ("freetrain", "milp", "slurm", "logs")
LONGEST_S = 90.0
"""The tests of one mutant take about so long at most; the quickest are taken."""

_REPORT = "FREETRAIN_MUTANTS_REPORT"
_COVERAGE = "[run]\nsource = freetrain,milp,slurm,logs\n"


# --- mutants ---


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of one file.

    Attributes:
        file: Path below the top of the repository.
        line: Its first line, from 1.
        start: First byte that is replaced.
        end: The byte after the last.
        kind: What is changed.
        old: The text that is replaced.
        new: The text in its place.
    """

    file: str
    line: int
    start: int
    end: int
    kind: str
    old: str
    new: str


_OPPOSITE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.GtE,
    ast.LtE: ast.Gt,
    ast.Gt: ast.LtE,
    ast.GtE: ast.Lt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_BOUNDARY: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
}
_CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}
_DROPPED = (ast.AugAssign, ast.Return, ast.Raise, ast.Continue, ast.Break, ast.Delete)


def mutants_of(file: str, source: bytes) -> Iterator[Mutant]:
    """Yield every mutant of one file."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for node in _running(ast.parse(source)):
        for place, kind, new in _changes(node):
            start = starts[place.lineno - 1] + place.col_offset
            end = starts[place.end_lineno - 1] + place.end_col_offset
            old = source[start:end].decode()
            yield Mutant(file, place.lineno, start, end, kind, old, new)


def _running(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the expressions and statements below *node* that run."""
    if isinstance(node, ast.JoinedStr):  # its parts have no places before Python 3.12
        return
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        return
    yield node
    for name, value in ast.iter_fields(node):
        if name in {"annotation", "returns", "decorator_list", "bases"}:
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _running(child)


def _changes(node: Any) -> Iterator[tuple[Any, str, str]]:  # noqa: ANN401, C901, PLR0912 - a list of cases
    """Yield the changes of one node: where in it, of what kind, and the new text."""
    match node:
        case ast.Compare(ops=[operator]):
            for kind, swaps in (("comparison", _OPPOSITE), ("boundary", _BOUNDARY)):
                if type(operator) in swaps:
                    yield node, kind, _changed(node, ops=[swaps[type(operator)]()])
        case ast.BoolOp(op=ast.And()):
            yield node, "and/or", _changed(node, op=ast.Or())
        case ast.BoolOp():
            yield node, "and/or", _changed(node, op=ast.And())
        case ast.UnaryOp(op=ast.Not()):
            yield node, "condition", f"({ast.unparse(node.operand)})"
        case ast.BinOp() if type(node.op) in _ARITHMETIC:
            op = _ARITHMETIC[type(node.op)]()
            yield node, "arithmetic", _changed(node, op=op)
        case ast.Constant(value=bool() as value):
            yield node, "truth", str(not value)
        case ast.Constant(value=int() | float() as number):
            yield node, "off by one", f"({number + 1!r})"
            yield node, "off by one", f"({number - 1!r})"
        case ast.Call(func=ast.Name(id=name)) if name in _CALLS:
            yield node.func, "min/max, any/all", _CALLS[name]
        case ast.If() | ast.While() | ast.IfExp():
            test = node.test
            if not isinstance(test, ast.Compare | ast.BoolOp | ast.UnaryOp):
                yield test, "condition", f"(not ({ast.unparse(test)}))"
        case ast.Expr(value=ast.Call() | ast.Yield() | ast.YieldFrom()):
            yield node, "statement dropped", "pass"
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield node, "statement dropped", "pass"
        case _ if isinstance(node, _DROPPED):
            yield node, "statement dropped", "pass"
        case _:
            pass


def _changed(node: ast.AST, **changes: object) -> str:
    changed = copy.copy(node)
    for name, value in changes.items():
        setattr(changed, name, value)
    return f"({ast.unparse(changed)})"


def draw(top: Path, *, count: int, seed: int) -> list[Mutant]:
    """Return *count* mutants of the tree at *top*: first a line is drawn, then one."""
    by_line: dict[tuple[str, int], list[Mutant]] = {}
    paths = [path for package in PACKAGES for path in (top / package).rglob("*.py")]
    for path in sorted(paths):
        file = str(path.relative_to(top))
        for mutant in mutants_of(file, path.read_bytes()):
            by_line.setdefault((file, mutant.line), []).append(mutant)
    places = sorted(by_line)
    random.Random(seed).shuffle(places)  # noqa: S311 - a sample, not a secret
    return [
        random.Random(f"{seed} {place}").choice(by_line[place])  # noqa: S311 - as above
        for place in places[:count]
    ]


# --- a scratch copy and its tests ---


def copy_of(tree: Path, top: Path) -> None:
    """Copy the last commit of *tree* to *top*, with an environment of its own.

    Packages come from the environment that runs this; the tree itself, which may be
    installed there too, is the copy.
    """
    top.mkdir(parents=True)
    archive = top.with_suffix(".tar")
    _git(tree, "archive", f"--output={archive}", "HEAD")
    shutil.unpack_archive(archive, top, filter="data")
    archive.unlink()
    shutil.copy(__file__, top / "tests" / "mutants.py")
    venv, own = top / ".venv", Path(sys.prefix) / "bin"
    argv = [sys.executable, "-m", "venv", "--without-pip", str(venv)]
    subprocess.run(argv, check=True)  # noqa: S603 - ours
    packages = sysconfig.get_path("purelib")
    place = sysconfig.get_path("purelib", vars={"base": str(venv)})
    (Path(place) / "copy.pth").write_text(f"{top}\n{packages}\n", encoding="utf-8")
    for program in own.iterdir():
        if not (venv / "bin" / program.name).exists():
            (venv / "bin" / program.name).symlink_to(program)
    script = venv / "bin" / "freetrain"
    script.unlink()
    script.write_text(
        f"#!{venv}/bin/python\nimport sys\nfrom freetrain.__main__ import run\n"
        "sys.exit(run())\n",
        encoding="utf-8",
    )
    script.chmod(0o755)


def _git(tree: Path, *words: str) -> str:
    argv = ["git", "-C", str(tree), *words]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout  # noqa: S603


def pytest_runtest_logreport(report: Any) -> None:  # noqa: ANN401 - pytest's
    """Note the outcome of a test; this module is a plugin of the runs it starts."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        return
    with Path(os.environ[_REPORT]).open("a", encoding="utf-8") as file:
        file.write(f"{report.nodeid}\t{report.outcome}\t{report.duration}\n")


def run_tests(
    top: Path, words: Sequence[str], *, limit_s: float
) -> tuple[int | None, dict[str, tuple[bool, float]]]:
    """Run pytest in *top*.

    Returns:
        Its exit status, None where it took too long, and by test whether it passed
        and how long it took.
    """
    report = top.with_suffix(".report")
    report.write_text("", encoding="utf-8")
    argv = [str(top / ".venv" / "bin" / "python"), "-m", "pytest", "-q"]
    argv += ["-p", "tests.mutants", "-p", "no:cacheprovider", *words]
    shared = os.environ.get("FREETRAIN_SHARED", str(_TOP.parent / "shared"))
    child = subprocess.Popen(  # noqa: S603 - ours
        argv,
        cwd=top,
        env={**os.environ, _REPORT: str(report), "FREETRAIN_SHARED": shared},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        code: int | None = child.wait(limit_s)
    except subprocess.TimeoutExpired:
        code = None
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    shutil.rmtree(top / ".hypothesis", ignore_errors=True)
    tests: dict[str, tuple[bool, float]] = {}
    for line in report.read_text(encoding="utf-8").splitlines():
        name, outcome, took_s = line.rsplit("\t", 2)
        passed, before_s = tests.get(name, (True, 0.0))
        tests[name] = (passed and outcome == "passed", before_s + float(took_s))
    return code, tests


class Relevance:
    """The quick tests that pass, and the lines each of them runs.

    Where *work* has them from an earlier run, they are read there.
    """

    def __init__(self, work: Path, top: Path, *, processes: int) -> None:
        self._top = top
        data, known = work / "coverage", work / "tests.json"
        if not known.exists():
            (work / "coveragerc").write_text(_COVERAGE, encoding="utf-8")
            os.environ["COVERAGE_FILE"] = str(data)
            words = ["-m", "not slurm", "--cov", "--cov-context=test", "--cov-report="]
            words += [f"--cov-config={work / 'coveragerc'}", "-n", str(processes)]
            _, tests = run_tests(top, words, limit_s=3 * 3600.0)
            del os.environ["COVERAGE_FILE"]
            seconds = {
                name: took_s for name, (passed, took_s) in tests.items() if passed
            }
            known.write_text(json.dumps(seconds), encoding="utf-8")
        self._seconds: dict[str, float] = json.loads(known.read_text(encoding="utf-8"))
        self._data = coverage.CoverageData(str(data))
        self._data.read()
        self._files = sorted(self._data.measured_files())

    def tests(self, mutant: Mutant) -> tuple[str, list[str]]:
        """Return what the tests have in common with *mutant*, and the tests."""
        file = self._top / mutant.file
        by_line = self._data.contexts_by_lineno(str(file))
        found = self._quickest(by_line.get(mutant.line, ()))
        if found:
            return "line", found
        found = self._quickest(test for tests in by_line.values() for test in tests)
        if found:
            return "module", found
        below = [other for other in self._files if Path(other).parent == file.parent]
        contexts = [self._data.contexts_by_lineno(other).values() for other in below]
        every = (test for lines in contexts for tests in lines for test in tests)
        return "package", self._quickest(every)

    def _quickest(self, contexts: Any) -> list[str]:  # noqa: ANN401 - any strings
        names = {context.rpartition("|")[0] for context in contexts}
        known = sorted(
            names & self._seconds.keys(), key=lambda n: (self._seconds[n], n)
        )
        taken: list[str] = []
        total_s = 0.0
        for name in known:
            total_s += self._seconds[name]
            if total_s > LONGEST_S and taken:
                break
            taken.append(name)
        return taken

    def seconds(self, tests: Sequence[str]) -> float:
        return sum(self._seconds[name] for name in tests)


# --- the sample ---


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a mutant.

    Attributes:
        mutant: The change.
        outcome: ``caught``, ``survived``, ``timeout`` (caught, too) or ``untested``.
        by: The test that failed, or nothing.
        chosen_by: Why the tests were run: they run its line, module or package.
        tests: How many were chosen.
        seconds: How long that took.
    """

    mutant: Mutant
    outcome: str
    by: str
    chosen_by: str
    tests: int
    seconds: float


def try_mutant(mutant: Mutant, top: Path, relevance: Relevance) -> Result:
    """Put *mutant* into the copy at *top*, run its tests, and take it out again."""
    began_s = time.monotonic()
    chosen_by, tests = relevance.tests(mutant)
    outcome, by = _verdict(mutant, top, tests, relevance.seconds(tests))
    took_s = round(time.monotonic() - began_s, 1)
    return Result(mutant, outcome, by, chosen_by, len(tests), took_s)


def _verdict(
    mutant: Mutant, top: Path, tests: list[str], expected_s: float
) -> tuple[str, str]:
    while tests:
        with _applied(mutant, top):
            code, seen = _run_only(top, tests, limit_s=5 * expected_s + 120.0)
        if code is None:
            return "timeout", ""
        if code == 0:
            return "survived", ""
        failed = [name for name, (passed, _) in seen.items() if not passed]
        if not failed:
            code, _ = _run_only(top, tests, "--collect-only", limit_s=600.0)
            if code == 0:
                return "caught", "the module cannot be imported"
            return "untested", f"pytest cannot collect the tests: exit {code}"
        if _run_only(top, failed[-1:], limit_s=600.0)[0] == 0:
            return "caught", failed[-1]
        tests = [name for name in tests if name not in failed]
    return "untested", ""


def _run_only(
    top: Path, tests: Sequence[str], *words: str, limit_s: float
) -> tuple[int | None, dict[str, tuple[bool, float]]]:
    chosen = top.with_suffix(".chosen")
    chosen.write_text("\n".join(tests) + "\n", encoding="utf-8")
    return run_tests(top, ["-x", *words, f"@{chosen}"], limit_s=limit_s)


@contextmanager
def _applied(mutant: Mutant, top: Path) -> Iterator[None]:
    """Have *mutant* in the copy at *top*."""
    path = top / mutant.file
    before = path.read_bytes()
    head, tail = before[: mutant.start], before[mutant.end :]
    try:
        _rewrite(path, head + mutant.new.encode() + tail)
        yield
    finally:
        _rewrite(path, before)


def _rewrite(path: Path, text: bytes) -> None:
    # Of the same size within the same second, the compiled file would be believed.
    Path(cache_from_source(str(path))).unlink(missing_ok=True)
    path.write_bytes(text)


def sample(
    mutants: Sequence[Mutant], tops: Sequence[Path], relevance: Relevance, out: Path
) -> list[Result]:
    """Try *mutants*, one in each of *tops* at a time; *out* has those that are done."""
    done = _read(out)
    free: SimpleQueue[Path] = SimpleQueue()
    for top in tops:
        free.put(top)
    lock = threading.Lock()

    def work(mutant: Mutant) -> Result:
        if mutant in done:
            return done[mutant]
        top = free.get()
        try:
            result = try_mutant(mutant, top, relevance)
        finally:
            free.put(top)
        with lock, out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(result)) + "\n")
        return result

    results = []
    with ThreadPoolExecutor(len(tops)) as pool:
        for number, result in enumerate(pool.map(work, mutants), start=1):
            sys.stdout.write(f"{number:>4} {_line(result)}\n")
            sys.stdout.flush()
            results.append(result)
    return results


def _read(out: Path) -> dict[Mutant, Result]:
    if not out.exists():
        return {}
    records = map(json.loads, out.read_text(encoding="utf-8").splitlines())
    results = (Result(**{**r, "mutant": Mutant(**r["mutant"])}) for r in records)
    return {result.mutant: result for result in results}


def _line(result: Result) -> str:
    mutant = result.mutant
    where = f"{result.outcome:<9} {mutant.file}:{mutant.line} {mutant.kind}"
    return f"{where}: {' '.join(mutant.old.split())} -> {mutant.new}"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("mutants.jsonl"))
    parser.add_argument("--tree", type=Path, default=_TOP, help="another checkout")
    parser.add_argument("--processes", type=int, choices=(1, 2), default=1)
    asked = parser.parse_args(arguments)
    os.nice(19)
    tree, out = asked.tree.resolve(), asked.out.resolve()
    commit = _git(tree, "rev-parse", "--short", "HEAD").strip()
    work = Path(tempfile.gettempdir()) / f"freetrain-mutants-{commit}"
    tops = [work / str(number) for number in range(asked.processes)]
    for top in tops:
        if not (top / ".venv" / "bin" / "freetrain").exists():
            shutil.rmtree(top, ignore_errors=True)
            copy_of(tree, top)
    relevance = Relevance(work, tops[0], processes=asked.processes)
    mutants = draw(tops[0], count=asked.count, seed=asked.seed)
    results = sample(mutants, tops, relevance, out)
    counts = Counter(result.outcome for result in results)
    caught = counts["caught"] + counts["timeout"]
    sys.stdout.write(f"{commit}: {caught} of {len(results)} caught; {dict(counts)}\n")
    return 0


_TOP = Path(__file__).resolve().parent.parent

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
