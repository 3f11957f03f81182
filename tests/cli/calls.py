"""What can be called: the verbs there are, and command lines as documents show them."""

import shlex
from collections.abc import Iterator

from typer.core import TyperCommand, TyperGroup

from freetrain.cli.app import LazyVerb, command_line


def verbs() -> list[tuple[str, ...]]:
    """Return the words of every verb, hidden ones left out."""
    return sorted(words for words, verb in lazy_verbs() if not verb.hidden)


def lazy_verbs() -> Iterator[tuple[tuple[str, ...], TyperCommand]]:
    """Yield every verb as it stands before its module is imported, by its words."""
    yield from _verbs(command_line(), ())


def _verbs(
    group: TyperGroup, words: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], TyperCommand]]:
    for name, command in group.commands.items():
        if isinstance(command, TyperGroup):
            yield from _verbs(command, (*words, name))
        elif isinstance(command, TyperCommand):
            yield (*words, name), command


def _command(words: tuple[str, ...]) -> TyperCommand | TyperGroup:
    command: object = command_line()
    for word in words:
        assert isinstance(command, TyperGroup)
        command = command.commands[word]
    assert isinstance(command, TyperCommand | TyperGroup)
    return command.loaded if isinstance(command, LazyVerb) else command


def options(words: tuple[str, ...]) -> set[str]:
    """Return the long names of the options of one verb."""
    params = _command(words).params
    names = (name for param in params for name in param.opts + param.secondary_opts)
    return {name for name in names if name.startswith("--")}


def examples(words: tuple[str, ...]) -> list[str]:
    """Return the command lines that the help of one verb shows as examples."""
    shown = str(_command(words).epilog or "").splitlines()
    return [line for line in shown if line.startswith("freetrain ")]


def parse(line: str) -> None:
    """Parse *line* as the program would, without running it."""
    command: object = command_line()
    words = shlex.split(line)[1:]
    while isinstance(command, TyperGroup):
        command = command.commands[words.pop(0)]
    assert isinstance(command, TyperCommand)
    command.make_context("freetrain", words)
