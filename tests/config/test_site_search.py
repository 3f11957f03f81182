"""Which file configures a site."""

import os
from pathlib import Path

import pytest

from freetrain.config.site import SiteSearch, find_site
from freetrain.errors import BadConfigurationError, MissingInputError

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
