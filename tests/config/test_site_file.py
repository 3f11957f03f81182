"""``freetrain.toml``: its meaning, its mistakes, and where it is found."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from freetrain.config import site as settings
from freetrain.config.document import BaseFolders
from freetrain.config.job import NodeSettings
from freetrain.config.site import (
    NO_RULES,
    Site,
    SiteSearch,
    default_site,
    find_site,
    parse_site,
    requirement_of,
    requirement_on,
)
from freetrain.errors import BadConfigurationError, MissingInputError
from freetrain.planning.settings import Solver
from slurm.records import (
    Grain,
    Gres,
    Node,
    NodeSharing,
    NodeState,
    Requirement,
)

HOME = Path("/home/ada")
PLACES = BaseFolders(Path("/etc/freetrain"), HOME)
ELSEWHERE = BaseFolders(Path("/elsewhere"))

WHOLE = """
state_directory = "~/state"
launch_agent = "agent.sh"

[lease]
partition = "freetrain"
qos = "scavenger"
account = "p123"
nice = 500
mode = "yield"
careful = false
exclusive = false
features = ["a100"]
gres = "gpu:a100:4"
memory = "32GiB"
cpus = 8
shortest = "3min"
longest = "2h"

[caps]
leases = 10
leases_per_tick = 5
rpcs_per_tick = 4
churn_per_hour = 60

[holes]
margin = "45s"
epilog = "8s"
plan_age = "5min"

[planner]
t_fwd = "5min"
policy = "equal"
priority = "slaq"
priority_settings = { horizon_s = 60, hysteresis = 0.1 }
learn = false
solver = "highs"
solver_limit = "3s"

[starts]
pause_after = 2
pause = "1h"
"""


def parse(text: str) -> Site:
    return parse_site(text.encode(), path="freetrain.toml", places=PLACES)


def refusal(text: str) -> str:
    with pytest.raises(BadConfigurationError) as refused:
        parse(text)
    return str(refused.value)


def test_a_file_says_everything_about_a_site() -> None:
    site = parse(WHOLE)

    assert site == Site(
        state_directory=Path("/home/ada/state"),
        launch_agent=Path("/etc/freetrain/agent.sh"),
        lease=settings.LeaseSettings(
            partition="freetrain",
            qos="scavenger",
            account="p123",
            nice=500,
            mode=settings.LeaseMode.YIELD,
            careful=False,
            exclusive=False,
            features=("a100",),
            gres=(Gres("gpu", "a100", 4),),
            memory_mib=32_768,
            cpus=8,
            shortest_s=180.0,
            longest_s=7_200.0,
        ),
        caps=settings.Caps(
            leases=10, leases_per_tick=5, rpcs_per_tick=4, churn_per_hour=60
        ),
        holes=settings.HoleSettings(margin_s=45.0, epilog_s=8.0, plan_age_s=300.0),
        planner=settings.PlannerSettings(
            t_fwd_s=300.0,
            policy="equal",
            priority="slaq",
            priority_settings=(("horizon_s", 60.0), ("hysteresis", 0.1)),
            learn=False,
            solver=Solver.HIGHS,
            solver_limit_s=3.0,
        ),
        starts=settings.StartSettings(pause_after=2, pause_s=3_600.0),
    )


def test_a_plain_user_needs_no_file() -> None:
    site = default_site(HOME)

    assert site == Site(state_directory=HOME / ".freetrain")
    assert site.lease.nice > 0
    assert (site.lease.mode, site.lease.careful) == (settings.LeaseMode.AUTO, True)


def test_without_a_home_the_state_directory_must_be_said() -> None:
    with pytest.raises(BadConfigurationError, match="HOME is not set"):
        default_site(None)

    site = parse_site(b'state_directory = "/s"', path="x", places=ELSEWHERE)

    assert site.state_directory == Path("/s")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[leese]", "freetrain.toml: unknown key \"leese\". Did you mean 'lease'?"),
        ("[lease]\nnice = 0", "freetrain.toml: [lease]: nice = 0, expected a whole"),
        ('[lease]\nmode = "preemt"', "one of auto, preempt, yield. Did you mean 'pre"),
        ('[lease]\nshortest = "2h"\nlongest = "1h"', "shortest is above longest"),
        ('[lease]\nqos = "a,b"', 'qos = "a,b", expected the name of a quality of'),
        ("[caps]\nrpcs_per_tick = 0", "expected a whole number from 1 to 1000"),
        ("[holes]\nmargin = 30", "margin = 30, expected a duration with its unit"),
        ('[planner]\npolicy = "scavenger"', "expected one of freetrain, equal"),
        ('[planner]\nt_fwd = "0s"', 't_fwd = "0s", expected a duration'),
        ('[planner]\nobjective = "weighted"', "objective has become priority: write"),
        (
            '[planner]\npriority = "slack"',
            "no priority 'slack'. Choose one",
        ),
        (
            '[planner]\npriority = "slaq"\npriority_settings = { gain = 1 }',
            "priority slaq has no setting 'gain'. It has horizon_s, hysteresis",
        ),
        ("[planner]\npriority_settings = { a = 1 }", "weight has no setting 'a'."),
        (
            '[planner]\nforecaster = "life"',
            "[planner]: there is no forecaster 'life'. Choose one of learned, ",
        ),
        ('[planner]\nforecaster = "Learned"', "expected the name of a forecaster"),
        ("[planner]\npriority_settings = 1", "by name, such as { hysteresis = 0.1 }"),
        ("[planner]\npriority_settings = { a = nan }", "expected numbers by name"),
        (
            f"[planner]\npriority_settings = {{ a = 1{'0' * 400} }}",
            '[planner]: priority_settings = {"a": 1000',
        ),
        ("[starts]\npause_after = 0", "expected a whole number from 1 to 1000"),
        ('state_directory = "../x"', 'state_directory = "../x", expected a path'),
        ("caps = [1]", "caps = [1], expected a table, begun by a line [caps]"),
    ],
)
def test_a_mistake_is_named_with_what_was_found_and_expected(
    text: str, said: str
) -> None:
    message = refusal(text)

    assert said in message
    assert message.endswith("Nothing was done.")


GPU = (Gres("gpu", "", 2),)
LEASE = settings.LeaseSettings(
    partition="idle", features=("ib",), gres=GPU, memory_mib=1_000, cpus=4
)
OWN = NodeSettings(
    max_nodes=1,
    partition="gpu",
    features=("a100",),
    gres=(Gres("gpu", "a100", 1),),
    memory_mib=64,
    cpus=1,
)


@pytest.mark.parametrize(
    ("nodes", "lease", "asked"),
    [
        # What a trainer leaves open is as the site says.
        (
            NodeSettings(max_nodes=1),
            LEASE,
            Requirement(
                partition="idle",
                features=frozenset({"ib"}),
                gres=GPU,
                memory_mib=1_000,
                cpus=4,
            ),
        ),
        # What a trainer says counts, and features add up.
        (
            OWN,
            LEASE,
            Requirement(
                partition="gpu",
                features=frozenset({"ib", "a100"}),
                gres=(Gres("gpu", "a100", 1),),
                memory_mib=64,
                cpus=1,
            ),
        ),
        # GPUs of a lease take the place of the site's; of the rest nothing changes.
        (
            NodeSettings(max_nodes=1, gpus_per_lease=2, gpu_type="v100"),
            structs.replace(LEASE, gres=(*GPU, Gres("nvme", "", 1))),
            Requirement(
                partition="idle",
                features=frozenset({"ib"}),
                gres=(Gres("gpu", "v100", 2), Gres("nvme", "", 1)),
                memory_mib=1_000,
                cpus=4,
                exclusive=False,
            ),
        ),
        # An idle node is looked for even where the site has Slurm share it.
        (
            NodeSettings(max_nodes=1),
            settings.LeaseSettings(exclusive=False),
            Requirement(partition="main"),
        ),
        # The default partition is asked where neither names one.
        (
            NodeSettings(max_nodes=1),
            settings.LeaseSettings(),
            Requirement(partition="main"),
        ),
    ],
)
def test_a_lease_asks_what_the_trainer_says_and_else_the_site(
    nodes: NodeSettings, lease: settings.LeaseSettings, asked: Requirement
) -> None:
    assert requirement_of(nodes, lease, default_partition="main") == asked


NODE = Node(
    name="n1",
    states=frozenset({NodeState.IDLE}),
    gres=(Gres("gpu", "a100", 4),),
    cpus=32,
    memory_mib=64_000,
    partitions=("main",),
)


@pytest.mark.parametrize(
    ("said", "cpus", "memory_mib"),
    [
        ({"gpus_per_lease": 1}, 8, 16_000),
        ({"gpus_per_lease": 3}, 24, 48_000),
        ({"gpus_per_lease": 1, "cpus": 2, "memory_mib": 500}, 2, 500),
        ({}, 0, 0),
    ],
)
def test_a_lease_of_gpus_has_its_part_of_what_is_not_said(
    said: dict[str, int], cpus: int, memory_mib: int
) -> None:
    asked = requirement_on(
        NodeSettings(max_nodes=1, **said),  # type: ignore[arg-type]
        settings.LeaseSettings(),
        default_partition="main",
        nodes=[NODE],
        sharing=NodeSharing(Grain.CPU, counts_memory=True),
    )

    assert (asked.cpus, asked.memory_mib) == (cpus, memory_mib)


UID = 1000


def around(tmp_path: Path, **environment: str) -> SiteSearch:
    home = tmp_path / "home"
    return SiteSearch(
        environment={"HOME": str(home), **environment},
        folder=tmp_path / "here",
        uid=tmp_path.stat().st_uid,
        system_folder=tmp_path / "etc",
        administrator=tmp_path.stat().st_uid,
    )


def write(path: Path, *, leases: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"[caps]\nleases = {leases}\n")
    return path


@pytest.mark.parametrize(
    ("environment", "asked", "chosen"),
    [
        ({}, None, ["etc", "home/.config/freetrain", "here"]),
        ({"XDG_CONFIG_HOME": "{0}/xdg"}, None, ["etc", "xdg/freetrain", "here"]),
        ({"FREETRAIN_CONFIG": "{0}/named/freetrain.toml"}, None, ["named"]),
        ({"FREETRAIN_CONFIG": "x"}, Path("../a/freetrain.toml"), ["a"]),
    ],
    ids=["usual places", "a folder of one's own", "the variable", "the option"],
)
def test_the_nearest_file_counts_and_files_are_not_merged(
    tmp_path: Path, environment: dict[str, str], asked: Path | None, chosen: list[str]
) -> None:
    places = around(tmp_path, **{k: v.format(tmp_path) for k, v in environment.items()})
    (tmp_path / "here").mkdir()
    if len(chosen) == 1:
        write(tmp_path / "here" / "freetrain.toml", leases=99)
    for leases, folder in enumerate(chosen, start=1):
        path = write(tmp_path / folder / "freetrain.toml", leases=leases)
        site = find_site(places, asked=asked)

        assert site.caps.leases == leases
        assert site.path is not None
        assert site.path.samefile(path)


def test_a_relative_configuration_folder_is_ignored_as_xdg_asks() -> None:
    places = SiteSearch({"XDG_CONFIG_HOME": "x", "HOME": "/h"}, Path("/here"), UID)

    assert [str(path) for path in places.candidates] == [
        "/here/freetrain.toml",
        "/h/.config/freetrain/freetrain.toml",
        "/etc/freetrain/freetrain.toml",
    ]


def test_without_any_file_the_defaults_count(tmp_path: Path) -> None:
    site = find_site(around(tmp_path))

    assert site == default_site(tmp_path / "home")
    assert site.path is None


def test_a_file_asked_for_must_be_there(tmp_path: Path) -> None:
    write(tmp_path / "here" / "freetrain.toml", leases=1)

    with pytest.raises(MissingInputError, match="cannot read the configuration"):
        find_site(around(tmp_path), asked=tmp_path / "gone.toml")
    with pytest.raises(MissingInputError, match="No such file"):
        find_site(around(tmp_path, FREETRAIN_CONFIG="gone.toml"))


def test_a_file_found_but_not_readable_is_not_passed_over(tmp_path: Path) -> None:
    (tmp_path / "here" / "freetrain.toml").mkdir(parents=True)
    write(tmp_path / "etc" / "freetrain.toml", leases=1)

    with pytest.raises(MissingInputError, match="Is a directory"):
        find_site(around(tmp_path))


def test_a_file_of_somebody_else_is_refused_unless_asked_for(tmp_path: Path) -> None:
    path = write(tmp_path / "here" / "freetrain.toml", leases=1)
    mine = around(tmp_path)
    other = SiteSearch(mine.environment, mine.folder, mine.uid + 1)
    path.touch()
    if mine.uid == 0:
        os.chown(path, UID, -1)  # root's own files are everybody's to trust

    with pytest.raises(BadConfigurationError, match="expected you or root"):
        find_site(other)

    assert find_site(other, asked=path).caps.leases == 1


def test_a_file_that_anybody_may_write_is_refused_unless_asked_for(
    tmp_path: Path,
) -> None:
    path = write(tmp_path / "here" / "freetrain.toml", leases=1)
    path.chmod(0o664)  # as with a group of one's own
    assert find_site(around(tmp_path)).caps.leases == 1

    path.chmod(0o666)
    with pytest.raises(BadConfigurationError, match="anybody may write to it"):
        find_site(around(tmp_path))

    assert find_site(around(tmp_path), asked=path).caps.leases == 1


def test_relative_paths_start_at_the_file_and_tilde_at_home(tmp_path: Path) -> None:
    path = tmp_path / "etc" / "freetrain.toml"
    path.parent.mkdir()
    path.write_text('state_directory = "~/ft"\nlaunch_agent = "bin/agent"\n')

    site = find_site(around(tmp_path))

    assert site.state_directory == tmp_path / "home" / "ft"
    assert site.launch_agent == tmp_path / "etc" / "bin" / "agent"


# Rules for all users.


def rule(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "etc" / "site.toml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def test_rules_for_all_users_count_whatever_file_users_choose(tmp_path: Path) -> None:
    rule(
        tmp_path,
        'partitions = ["main", "gpu"]\n[caps]\nleases = 40\n[weights]\nada = 2\n',
    )
    own = write(tmp_path / "here" / "freetrain.toml", leases=500)

    for asked in (None, own):
        site = find_site(around(tmp_path), asked=asked)

        assert site.caps.leases == 500
        assert site.rules.caps.leases == 40
        assert site.rules.weights == (("ada", 2.0),)
        assert site.rules.allows("gpu")
        assert not site.rules.allows("other")


def test_without_rules_everything_is_allowed(tmp_path: Path) -> None:
    rules = find_site(around(tmp_path)).rules
    assert rules == NO_RULES
    assert rules.allows("main")


def test_users_files_have_no_rules_for_all(tmp_path: Path) -> None:
    path = tmp_path / "here" / "freetrain.toml"
    path.parent.mkdir()
    path.write_text("[rules]\npartitions = []\n")
    with pytest.raises(BadConfigurationError, match="rules"):
        find_site(around(tmp_path))


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("leases = 4", "leases"),
        ("[caps]\nchurn_per_hour = 4", "churn_per_hour"),
        ("[caps]\nleases = -1", "leases"),
        ("[weights]\nada = 0", "weights"),
        ('[weights]\n"a b" = 1', "weights"),
        ("partitions = [1]", "partitions"),
        ("[caps", "not TOML"),
    ],
)
def test_a_mistake_in_the_rules_names_file_and_key(
    tmp_path: Path, text: str, named: str
) -> None:
    path = rule(tmp_path, text)
    with pytest.raises(BadConfigurationError, match=named) as caught:
        find_site(around(tmp_path))
    assert str(path) in str(caught.value)


def test_rules_that_others_than_root_could_write_are_refused(tmp_path: Path) -> None:
    path = rule(tmp_path, "")
    mine = around(tmp_path)
    other = replace(mine, administrator=mine.uid + 1)
    with pytest.raises(BadConfigurationError, match="expected root"):
        find_site(other)
    for place, mode in ((path, 0o664), (path.parent, 0o777)):
        usual = place.stat().st_mode
        place.chmod(mode)
        with pytest.raises(BadConfigurationError, match="others than root may write"):
            find_site(mine)
        place.chmod(usual)
    assert find_site(mine).rules == NO_RULES


def test_rules_that_cannot_be_read_are_not_passed_over(tmp_path: Path) -> None:
    (tmp_path / "etc" / "site.toml").mkdir(parents=True)
    with pytest.raises(MissingInputError, match="rules for all users"):
        find_site(around(tmp_path))


def test_a_file_below_a_folder_that_anybody_may_write_is_refused_unless_asked_for(
    tmp_path: Path,
) -> None:
    path = write(tmp_path / "here" / "freetrain.toml", leases=1)
    path.parent.chmod(0o777)

    with pytest.raises(BadConfigurationError, match="put another file there"):
        find_site(around(tmp_path))

    assert find_site(around(tmp_path), asked=path).caps.leases == 1
    path.parent.chmod(0o1777)
    assert find_site(around(tmp_path)).caps.leases == 1


def test_a_pipe_in_place_of_a_file_that_nobody_named_is_not_waited_for(
    tmp_path: Path,
) -> None:
    (tmp_path / "here").mkdir()
    os.mkfifo(tmp_path / "here" / "freetrain.toml")

    with pytest.raises(MissingInputError, match="not a plain file"):
        find_site(around(tmp_path))
