"""What can be called: the verbs there are, and command lines as documents show them."""

import importlib
import pkgutil
import shlex
from collections.abc import Iterator
from types import ModuleType

import typer
from typer.core import TyperGroup

import freetrain.cli
from freetrain.cli.app import app


def verbs() -> list[tuple[str, ...]]:
    """Return the words of every verb, hidden ones left out."""
    return sorted(_verbs(typer.main.get_command(app)))


def _verbs(command: object, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if isinstance(command, TyperGroup):
        for name, inner in command.commands.items():
            yield from _verbs(inner, (*words, name))
    elif not getattr(command, "hidden", False):
        yield words


def options(words: tuple[str, ...]) -> set[str]:
    """Return the long names of the options of one verb."""
    command: object = typer.main.get_command(app)
    for word in words:
        assert isinstance(command, TyperGroup)
        command = command.commands[word]
    params = getattr(command, "params", ())
    names = (name for param in params for name in param.opts + param.secondary_opts)
    return {name for name in names if name.startswith("--")}


def verb_modules() -> list[ModuleType]:
    """Return the modules that show examples in the help of a verb."""
    found = (
        importlib.import_module(f"freetrain.cli.{one.name}")
        for one in pkgutil.iter_modules(freetrain.cli.__path__)
    )
    return [module for module in found if hasattr(module, "EXAMPLES")]


def parse(line: str) -> None:
    """Parse *line* as the program would, without running it."""
    command = typer.main.get_command(app)
    words = shlex.split(line)[1:]
    while isinstance(command, TyperGroup):
        command = command.commands[words.pop(0)]
    command.make_context("freetrain", words)
