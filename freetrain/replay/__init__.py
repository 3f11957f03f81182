"""Replay of scheduler logs: what FreeTrain would have done.

``ft.replay(log, policies=["lookahead", "scavenger"])`` replays a log and compares
policies: it calls ``freetrain.api.replay.replay``.
"""

import sys
from importlib import import_module
from inspect import Signature, getdoc, signature
from types import ModuleType
from typing import Any


class _CallablePackage(ModuleType):
    """This package as it is, and called it is ``ft.replay``.

    Importing any module of it puts the package in the place of a function of that name
    in ``freetrain``.
    """

    def __call__(self, *args: Any, **options: Any) -> Any:  # noqa: ANN401
        return import_module("freetrain.api.replay").replay(*args, **options)

    @property
    def __doc__(self) -> str:  # type: ignore[override] # help(ft.replay) shows it
        """What the package is, and how it is called."""
        called = import_module("freetrain.api.replay").replay
        return f"{_OWN_DOC}\nft.replay{signature(called)}\n\n{getdoc(called)}\n"

    @property
    def __signature__(self) -> Signature:
        return signature(import_module("freetrain.api.replay").replay)


_OWN_DOC = str(__doc__)

sys.modules[__name__].__class__ = _CallablePackage
