"""``freetrain.toml``: its meaning, its mistakes, and where it is found."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from freetrain.config import site as settings
from freetrain.config.document import Places, render_record
from freetrain.config.job import NodeSettings
from freetrain.config.site import (
    Site,
    SiteSearch,
    default_site,
    find_site,
    parse_site,
    requirement_of,
)
from freetrain.errors import BadConfigurationError, MissingInputError
from freetrain.planning.settings import LIVE_POLICIES, Solver
from slurm.records import Gres, Requirement

HOME = Path("/home/ada")
PLACES = Places(Path("/etc/freetrain"), HOME)
ELSEWHERE = Places(Path("/elsewhere"))

WHOLE = """
state_directory = "~/state"
launch_agent = "agent.sh"

[lease]
partition = "freetrain"
qos = "scavenger"
account = "p123"
nice = 500
mode = "yield"
exclusive = false
features = ["a100"]
gres = "gpu:a100:4"
memory = "32GiB"
cpus = 8
shortest = "3min"
longest = "2h"

[caps]
leases = 10
requests_per_tick = 5
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
            exclusive=False,
            features=("a100",),
            gres=(Gres("gpu", "a100", 4),),
            memory_mib=32_768,
            cpus=8,
            shortest_s=180.0,
            longest_s=7_200.0,
        ),
        caps=settings.Caps(
            leases=10, requests_per_tick=5, rpcs_per_tick=4, churn_per_hour=60
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
    assert site.lease.mode is settings.LeaseMode.AUTO


@pytest.mark.parametrize(
    ("lease", "is_careful"),
    [
        ("", True),
        ("careful = false", False),
        ('mode = "yield"', True),
        ('mode = "preempt"\ncareful = false', False),
    ],
)
def test_a_site_is_careful_unless_it_says_otherwise(
    lease: str, *, is_careful: bool
) -> None:
    site = parse(f"[lease]\n{lease}")

    assert site.lease.careful == is_careful


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


seconds = st.integers(60, 86_400).map(float)
sites = st.builds(
    Site,
    state_directory=st.sampled_from([Path("/s"), Path("/a b/'$x")]),
    launch_agent=st.none() | st.just(Path("/bin/agent")),
    lease=st.builds(
        settings.LeaseSettings,
        partition=st.sampled_from(["", "main"]),
        nice=st.integers(1, 2_147_483_645),
        mode=st.sampled_from(settings.LeaseMode),
        exclusive=st.booleans(),
        memory_mib=st.none() | st.integers(1, 2**29),
        shortest_s=st.just(60.0),
        longest_s=seconds,
    ),
    caps=st.builds(settings.Caps, leases=st.integers(0, 100_000)),
    holes=st.builds(
        settings.HoleSettings, margin_s=st.none() | seconds, epilog_s=seconds
    ),
    planner=st.builds(
        settings.PlannerSettings,
        t_fwd_s=seconds,
        policy=st.sampled_from(LIVE_POLICIES),
        priority=st.sampled_from(["weight", "fair"]),
        forecaster=st.sampled_from(["learned", "life-table"]),
        priority_settings=st.just(()) | st.just((("hysteresis", 0.25),)),
        learn=st.booleans(),
        solver=st.sampled_from(Solver),
    ),
    starts=st.builds(settings.StartSettings, pause_s=seconds),
)


@given(sites)
def test_what_is_rendered_reads_back_as_the_same_from_anywhere(site: Site) -> None:
    text = render_record(structs.replace(site, path=Path("/was/here")))

    again = parse_site(text.encode(), path="x", places=ELSEWHERE)

    assert again == site
    assert render_record(again) == text


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


UID = 1000


def around(tmp_path: Path, **environment: str) -> SiteSearch:
    home = tmp_path / "home"
    return SiteSearch(
        environment={"HOME": str(home), **environment},
        folder=tmp_path / "here",
        uid=tmp_path.stat().st_uid,
        system_folder=tmp_path / "etc",
    )


def write(path: Path, *, leases: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"[caps]\nleases = {leases}\n")
    return path


def test_the_nearest_file_counts_and_files_are_not_merged(tmp_path: Path) -> None:
    places = around(tmp_path)
    found = []
    for leases, folder in enumerate(["etc", "home/.config/freetrain", "here"], start=1):
        write(tmp_path / folder / "freetrain.toml", leases=leases)
        found.append(find_site(places).caps.leases)

    assert found == [1, 2, 3]


def test_the_variable_comes_before_files_that_are_found(tmp_path: Path) -> None:
    write(tmp_path / "here" / "freetrain.toml", leases=1)
    named = write(tmp_path / "named.toml", leases=2)

    site = find_site(around(tmp_path, FREETRAIN_CONFIG=str(named)))

    assert (site.caps.leases, site.path) == (2, named)


def test_the_option_comes_before_the_variable(tmp_path: Path) -> None:
    named = write(tmp_path / "named.toml", leases=2)
    asked = write(tmp_path / "here" / "asked.toml", leases=3)

    site = find_site(
        around(tmp_path, FREETRAIN_CONFIG=str(named)), asked=Path("asked.toml")
    )

    assert (site.caps.leases, site.path) == (3, asked)


def test_a_configuration_folder_of_ones_own_is_looked_at(tmp_path: Path) -> None:
    write(tmp_path / "xdg" / "freetrain" / "freetrain.toml", leases=4)

    site = find_site(around(tmp_path, XDG_CONFIG_HOME=str(tmp_path / "xdg")))

    assert site.caps.leases == 4


def test_a_relative_configuration_folder_is_ignored_as_xdg_asks() -> None:
    places = SiteSearch({"XDG_CONFIG_HOME": "x", "HOME": "/h"}, Path("/here"), UID)

    assert [str(path) for path in places.candidates] == [
        "/here/freetrain.toml",
        "/h/.config/freetrain/freetrain.toml",
        "/etc/freetrain/freetrain.toml",
    ]


def test_without_any_file_the_defaults_count(tmp_path: Path) -> None:
    site = find_site(around(tmp_path))

    assert site.path is None
    assert site.state_directory == tmp_path / "home" / ".freetrain"


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
