"""What a training script shows of itself, by its source alone; nothing of it is run.

``look_at`` reads a Python script and the modules beside it that it imports: which
libraries it uses, whether its processes share the work, where it saves and whether it
goes on from there. All of it is a guess that a user can correct in the job file.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections import Counter
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import PurePath
from typing import TYPE_CHECKING

from freetrain.errors import MissingInputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

_MOST_BYTES = 1 << 20
_MOST_FILES = 50

_SHARING_PACKAGES = frozenset(
    {
        "accelerate",
        "deepspeed",
        "horovod",
        "lightning",
        "mpi4py",
        "pytorch_lightning",
        "torch.distributed",
        "transformers",
    }
)
_SHARING_WORDS = frozenset(
    {"RANK", "WORLD_SIZE", "init_process_group", "DistributedDataParallel"}
)
_RESUMING = re.compile(
    r"resume|restore|load_state_dict|load_checkpoint|latest|last_checkpoint|ckpt_path"
    r"|^(exists|is_?file|glob|listdir|scandir)$",
    re.IGNORECASE,
)

_LOGGERS = {
    "CSVLogger": "lightning",
    "TensorBoardLogger": "tensorboard",
}
"""Lightning's loggers whose files can be read; without one Lightning takes either."""

_SAVES = (
    r"(ckpt|checkpoint|snapshot)s?(_?(dir|path|folder|file|name))?",
    r"save(d|_?(dir|path|folder|file))?",
    r"out(put)?(_?(dir|path|folder))?|default_root_dir|dirpath|work_?dir",
)
"""Names of options, arguments and variables for the place of checkpoints, as regular
expressions, the surest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptView:
    """What is seen of a script.

    Attributes:
        modules: The modules that it imports, in full.
        words: Names and short texts in it.
        options: Its command line options, with their defaults; "" for none.
        places: Texts by the name of the option, argument or variable that has them.
        logger: Format and folder of a logger of Lightning's that it makes; None where
            it makes none, or not in a place that its source shows.
        global_batch: Samples in a step, over all ranks; None where its source shows no
            such number, or several.
        problem: Why nothing of it is seen; "" where it was read.
    """

    modules: frozenset[str] = frozenset()
    words: frozenset[str] = frozenset()
    options: Mapping[str, str]
    places: Mapping[str, str]
    logger: tuple[str, str] | None = None
    global_batch: int | None = None
    problem: str = ""

    def uses(self, package: str) -> bool:
        """Tell whether it imports *package* or a module of it."""
        return any(f"{name}.".startswith(f"{package}.") for name in self.modules)

    @property
    def is_elastic(self) -> bool:
        """Whether it uses ``freetrain.elastic``, by itself or in a library's loop."""
        return self.uses("freetrain.elastic") or self.is_integrated

    @property
    def is_integrated(self) -> bool:
        """Whether it uses ``freetrain.integrations``."""
        return self.uses("freetrain.integrations")

    @property
    def shares_work(self) -> bool:
        """Whether its processes seem to share one training."""
        return (
            self.is_elastic
            or any(map(self.uses, _SHARING_PACKAGES))
            or not _SHARING_WORDS.isdisjoint(self.words)
        )

    @property
    def is_lightning(self) -> bool:
        """Whether it uses Lightning, under either of its names."""
        return self.uses("lightning") or self.uses("pytorch_lightning")

    @property
    def resumes(self) -> bool:
        """Whether it seems to go on from what it saved."""
        return any(map(_RESUMING.search, (*self.words, *self.options)))

    def saves_to(self, arguments: Sequence[str]) -> str:
        """Return the place of its checkpoints when called with *arguments*; or ""."""
        given = dict(_given(arguments))
        for names in (given, self.options, self.places):
            for pattern in _SAVES:
                for name, place in names.items():
                    if place and re.fullmatch(pattern, _plain(name)):
                        return place
        return ""

    def resume_option(self, arguments: Sequence[str]) -> str:
        """Return an option to resume that *arguments* lack; "" for none."""
        given = {name for name, _ in _given(arguments)}
        known = [name for name in self.options if "resume" in name]
        return "" if given.intersection(known) else next(iter(known), "")


NOTHING_SEEN = ScriptView(options={}, places={})
"""Of a program that is no Python script."""


def _given(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the options among *arguments* with their values; "" for none."""
    for word, after in pairwise((*arguments, "")):
        if word.startswith("--"):
            name, _, value = word.partition("=")
            yield name, value or ("" if after.startswith("-") else after)


def _plain(name: str) -> str:
    return name.lstrip("-").replace("-", "_").lower()


def look_at(script: Path) -> ScriptView:
    """Return what *script* and the modules beside it show.

    Of a script that is not Python, or of a later Python than this one, nothing is seen.

    Raises:
        MissingInputError: There is no such file, or it cannot be read.
    """
    seen = _Seen()
    waiting, known = [script], {script}
    while waiting and len(known) <= _MOST_FILES:
        path = waiting.pop()
        try:
            tree = _parsed(path)
        except OSError as error:
            if path == script:
                raise MissingInputError(
                    f"cannot read {path}: {error.strerror}. Nothing was written. Name "
                    f"a script that is there."
                ) from error
            continue
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            if path == script:
                return replace(NOTHING_SEEN, problem=str(error))
            continue
        seen.begin_file(tree)
        for node in ast.walk(tree):
            seen.visit(node)
        for module in sorted(seen.modules):
            place = script.parent.joinpath(*module.split("."))
            for other in (place.with_suffix(".py"), place / "__init__.py"):
                if other not in known and other.is_file():
                    known.add(other)
                    waiting.append(other)
    return ScriptView(
        modules=frozenset(seen.modules),
        words=frozenset(seen.words),
        options=seen.options,
        places=seen.places,
        logger=seen.logger,
        global_batch=next(iter(seen.batches)) if len(seen.batches) == 1 else None,
    )


def _parsed(path: Path) -> ast.Module:
    with path.open("rb") as file:
        source = file.read(_MOST_BYTES)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the script's own
        return ast.parse(source)


class _Seen(ast.NodeVisitor):
    """Collects what one file after the other shows, one node at a time.

    It does not go into a node's children: a long sum is deeper than Python recurses.
    """

    def __init__(self) -> None:
        self.modules: set[str] = set()
        self.words: set[str] = set()
        self.options: dict[str, str] = {}
        self.places: dict[str, str] = {}
        self.logger: tuple[str, str] | None = None
        self.batches: set[int | None] = set()  # None: a number that is not shown
        self._texts: dict[str, str] = {}
        self._numbers: dict[str, int] = {}

    def begin_file(self, tree: ast.Module) -> None:
        """Learn which variables of a file are set once, to a text or a number."""
        nodes = [*ast.walk(tree)]
        named = [n.id for n in nodes if isinstance(n, ast.Name) and _is_set(n)]
        times = Counter([*named, *(n.arg for n in nodes if isinstance(n, ast.arg))])
        once = {
            node.targets[0].id: node.value
            for node in nodes
            if isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and times[node.targets[0].id] == 1
        }
        self._texts = {name: _text(value) for name, value in once.items()}
        numbers = {name: _number(value, {}) for name, value in once.items()}
        self._numbers = {name: n for name, n in numbers.items() if n is not None}

    def generic_visit(self, node: ast.AST) -> None:
        """Take nothing from a node of another kind."""

    def visit_Import(self, node: ast.Import) -> None:
        self.modules.update(alias.name for alias in node.names)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        self.modules.add(module)
        names = [alias.name for alias in node.names]
        self.modules.update(f"{module}.{name}".lstrip(".") for name in names)
        self.words.update(names)

    def visit_Name(self, node: ast.Name) -> None:
        self.words.add(node.id)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self.words.add(node.attr)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str) and node.value.isidentifier():
            self.words.add(node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            if isinstance(target, ast.Name):
                self._note(target.id, node.value)

    def visit_Call(self, node: ast.Call) -> None:
        called = getattr(node.func, "attr", getattr(node.func, "id", ""))
        names = [_text(word) for word in node.args]
        options = [name for name in names if name.startswith("--")]
        if called in {"add_argument", "option"} and options:
            default = [k.value for k in node.keywords if k.arg == "default"]
            self.options[options[0]] = _text(default[0], self._texts) if default else ""
        for keyword in node.keywords:
            if keyword.arg is not None:
                self.words.add(keyword.arg)
                self._note(keyword.arg, keyword.value)
            if keyword.arg == "global_batch":
                self.batches.add(_number(keyword.value, self._numbers))
        if called == "save" and len(node.args) > 1:  # as torch.save
            self._note("saved", node.args[1])
        if called in _LOGGERS and self.logger is None:
            self._note_logger(_LOGGERS[called], node)

    def _note_logger(self, form: str, node: ast.Call) -> None:
        """Note where one of Lightning's loggers writes: ``save_dir/name/version_N``."""
        given = {k.arg: k.value for k in node.keywords}
        given |= zip(("save_dir", "name", "version"), node.args, strict=False)
        texts = {name: _text(value, self._texts) for name, value in given.items()}
        name = texts.get("name", "lightning_logs")
        if texts.get("save_dir") and name and "version" not in texts:
            self.logger = form, str(PurePath(texts["save_dir"], name))

    def _note(self, name: str, value: ast.expr) -> None:
        if text := _text(value, self._texts):
            self.places.setdefault(name, text)


def _is_set(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Store)


def _number(node: ast.expr, variables: Mapping[str, int]) -> int | None:
    """Return the positive whole number that *node* is; None where it is none."""
    if isinstance(node, ast.Name):
        return variables.get(node.id)
    value = node.value if isinstance(node, ast.Constant) else None
    return value if type(value) is int and value > 0 else None


def _text(node: ast.expr, variables: Mapping[str, str] | None = None) -> str:
    """Return the text that *node* is, or a path of it; "" where it is none.

    *variables* are names that stand for texts.
    """
    if isinstance(node, ast.Name):
        return "" if variables is None else variables.get(node.id, "")
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.Call) and len(node.args) == 1:
        called = getattr(node.func, "attr", getattr(node.func, "id", ""))
        return _text(node.args[0], variables) if called == "Path" else ""
    return ""
