"""The fixture that starts clusters for tests, each once a session, and stops them."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests.cluster.holding import running_cluster
from tests.cluster.machine import ClusterRefusedError, prepare, this_machine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.cluster.cluster import Cluster
    from tests.cluster.settings import Variant

SWITCH = "FREETRAIN_SLURM"


@pytest.fixture(scope="session")
def cluster_of() -> Iterator[Callable[..., Cluster]]:
    """Return a function from variants to a running cluster, started when first asked.

    Skips where there can be none, and where nobody asked for one: it installs
    packages and starts daemons.
    """
    if os.environ.get(SWITCH) != "1":
        pytest.skip(f"no real Slurm was asked for: `make test` does, or {SWITCH}=1")
    try:
        prepare(this_machine())
    except ClusterRefusedError as refusal:
        pytest.skip(str(refusal))
    running: dict[frozenset[Variant], Cluster] = {}
    with ExitStack() as held:

        def start(*variants: Variant) -> Cluster:
            key = frozenset(variants)
            if key not in running:
                running[key] = held.enter_context(running_cluster(key))
            return running[key]

        yield start
