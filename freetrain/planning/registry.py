"""Makes the policy of a name; names are listed in ``freetrain.planning.settings``."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from freetrain.planning.settings import POLICIES

if TYPE_CHECKING:
    from freetrain.planning.request import Policy, Tools


def make_policy(name: str, tools: Tools) -> Policy:
    """Return the policy *name*, which must be in ``POLICIES`` and go by counts.

    Its module is imported here: a tick or a replay loads none of the others.
    """
    policy: Policy = import_module(POLICIES[name].module).make(tools)
    return policy
