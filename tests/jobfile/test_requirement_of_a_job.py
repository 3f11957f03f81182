"""What leases ask of their nodes, said by a trainer or by its site."""

from freetrain.config.job import Nodes, requirement_of
from freetrain.config.site import LeaseSettings
from slurm.records import Gres, Requirement

GPU = (Gres("gpu", "", 2),)
SITE = LeaseSettings(
    partition="idle", features=("ib",), gres=GPU, memory_mib=1_000, cpus=4
)


def test_what_a_trainer_leaves_open_is_as_the_site_says() -> None:
    asked = requirement_of(Nodes(max_nodes=1), SITE, default_partition="main")

    assert asked == Requirement(
        partition="idle",
        features=frozenset({"ib"}),
        gres=GPU,
        memory_mib=1_000,
        cpus=4,
    )


def test_what_a_trainer_says_counts_and_features_add_up() -> None:
    wanted = Gres("gpu", "a100", 1)
    nodes = Nodes(
        max_nodes=1,
        partition="gpu",
        features=("a100",),
        gres=(wanted,),
        memory_mib=64,
        cpus=1,
    )

    asked = requirement_of(nodes, SITE, default_partition="main")

    assert asked == Requirement(
        partition="gpu",
        features=frozenset({"ib", "a100"}),
        gres=(wanted,),
        memory_mib=64,
        cpus=1,
    )


def test_where_nobody_names_a_partition_the_default_one_is_asked() -> None:
    asked = requirement_of(
        Nodes(max_nodes=1), LeaseSettings(), default_partition="main"
    )

    assert asked == Requirement(partition="main")
