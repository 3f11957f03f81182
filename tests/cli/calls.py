"""What can be called: the verbs there are, and command lines as documents show them."""

import shlex
from collections.abc import Iterator

import typer
from typer.core import TyperGroup

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


def _command(words: tuple[str, ...]) -> object:
    command: object = typer.main.get_command(app)
    for word in words:
        assert isinstance(command, TyperGroup)
        command = command.commands[word]
    return command


def options(words: tuple[str, ...]) -> set[str]:
    """Return the long names of the options of one verb."""
    params = getattr(_command(words), "params", ())
    names = (name for param in params for name in param.opts + param.secondary_opts)
    return {name for name in names if name.startswith("--")}


def examples(words: tuple[str, ...]) -> list[str]:
    """Return the command lines that the help of one verb shows as examples."""
    shown = str(getattr(_command(words), "epilog", "")).splitlines()
    return [line for line in shown if line.startswith("freetrain ")]


def parse(line: str) -> None:
    """Parse *line* as the program would, without running it."""
    command = typer.main.get_command(app)
    words = shlex.split(line)[1:]
    while isinstance(command, TyperGroup):
        command = command.commands[words.pop(0)]
    command.make_context("freetrain", words)
