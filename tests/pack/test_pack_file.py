"""Pack files: every key and default, as the page has them, and every mistake."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from freetrain.config.document import keys_of, toml_value
from freetrain.errors import BadConfigurationError, FreeTrainError
from freetrain.losscurve.forecast import Better
from freetrain.pack.pack import ControllerName, Inbox, Pack, SharingName, read_pack
from freetrain.priority.flowcon import DEFAULT_ALPHA

WHOLE = """
members = ["a/job.toml", "/b.toml"]
inbox = "inbox"
stay = "10min"
sharing = "fair"
interval = "5s"
alpha = 0.1
metric = "accuracy"
better = "higher"
means = "duty-cycle"
cpus = 3
"""
JOB = """
name = "{name}"
command = "true"
elastic = false
[nodes]
{nodes}
[launch]
{launch}
"""


def read(folder: Path, text: str) -> Pack:
    path = folder / "pack.toml"
    path.write_text(text)
    return read_pack(path)


def test_every_key_is_read(tmp_path: Path) -> None:
    assert read(tmp_path, WHOLE) == Pack(
        members=(tmp_path / "a/job.toml", (tmp_path / "/b.toml")),
        inbox=tmp_path / "inbox",
        stay_s=600.0,
        sharing=SharingName.FAIR,
        interval_s=5.0,
        alpha=0.1,
        metric="accuracy",
        better=Better.HIGHER,
        means=ControllerName.DUTY_CYCLE,
        cpus=3,
    )


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "members"),
        ("members = 3", "members"),
        ("members = ['../x']", "members"),
        ("inbox = 'x'\nsharing = 'slaq'", "sharing"),
        ("inbox = 'x'\ninterval = 3", "interval"),
        ("inbox = 'x'\nalpha = 0", "alpha"),
        ("inbox = 'x'\nmetric = 'a b'", "metric"),
        ("inbox = 'x'\nmeans = 'magic'", "means"),
        ("inbox = 'x'\ncpus = 0", "cpus"),
        ("inbox = 'x'\nmember = []", "member"),
        ("inbox = ", "TOML"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(BadConfigurationError, match=named):
        read(tmp_path, text)


def write_job(
    folder: Path, file: str, name: str, nodes: str = "max = 4", launch: str = ""
) -> Path:
    path = folder / file
    path.write_text(JOB.format(name=name, nodes=nodes, launch=launch))
    return path


def test_a_trainer_that_needs_more_than_a_pack_has_is_refused(tmp_path: Path) -> None:
    wide = write_job(tmp_path, "w.toml", "wide", nodes="min = 2\nmax = 4")
    many = write_job(tmp_path, "m.toml", "many", launch="processes_per_node = 2")
    for path in (wide, many):
        with pytest.raises(FreeTrainError, match=path.name):
            Inbox(Pack(members=(path,)), home=None, say=print)


def test_a_pack_is_no_member_of_a_pack(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    launch = '[launch]\nlauncher = "pack"\npack = "pack.toml"\n'
    path.write_text(f'name = "p"\n[nodes]\nmax = 1\n{launch}')
    with pytest.raises(FreeTrainError, match="no members of packs"):
        Inbox(Pack(members=(path,)), home=None, say=print)


@pytest.mark.parametrize("table", ['[checkpoint]\npath = "x"', 'logs = "x"'])
def test_two_trainers_with_one_folder_are_refused(tmp_path: Path, table: str) -> None:
    (tmp_path / "y").symlink_to(tmp_path / "x")
    for name, place in (("a", "x"), ("b", "y")):
        said = table.replace('"x"', f'"{place}"')
        nodes = "nodes = { max = 1 }"
        text = f'name = "{name}"\ncommand = "x"\n{nodes}\n{said}\n'
        (tmp_path / f"{name}.toml").write_text(text)
    both = (tmp_path / "a.toml", tmp_path / "b.toml")
    with pytest.raises(FreeTrainError, match="the trainer 'a' has"):
        Inbox(Pack(members=both), home=None, say=print)


def test_two_trainers_of_one_name_are_refused(tmp_path: Path) -> None:
    paths = tuple(write_job(tmp_path, file, "same") for file in ("a.toml", "b.toml"))
    with pytest.raises(FreeTrainError, match="same"):
        Inbox(Pack(members=paths), home=None, say=print)


def test_the_inbox_is_read_once_and_mistakes_in_it_are_reported_once(
    tmp_path: Path,
) -> None:
    said: list[str] = []
    inbox = Inbox(Pack(inbox=tmp_path), home=None, say=said.append)
    write_job(tmp_path, "a.toml", "a")
    (tmp_path / "half.toml").write_text('name = "h')
    (tmp_path / "notes.txt").write_text("no job file")
    assert [job.name for job in inbox.arrivals()] == ["a"]
    assert inbox.arrivals() == ()
    assert len(said) == 1
    assert "half.toml" in said[0]
    write_job(tmp_path, "half.toml", "half")
    assert [job.name for job in inbox.arrivals()] == ["half"]
    assert len(said) == 1


def test_an_inbox_that_is_not_there_yet_is_empty(tmp_path: Path) -> None:
    inbox = Inbox(Pack(inbox=tmp_path / "later"), home=None, say=print)
    assert inbox.arrivals() == ()


PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "packs.md"
ROW = re.compile(r"^\| `([a-z_]+)` \| [^|]+ \| (`[^`]+`|-) \|", re.MULTILINE)


def test_the_page_has_every_key_and_its_default() -> None:
    expected = {
        key.name: "-"
        if key.default is None
        else f"`{toml_value(key.written(key.default))}`"
        for key in keys_of(Pack)
    }
    assert dict(ROW.findall(PAGE.read_text())) == expected


def test_the_default_of_alpha_is_that_of_the_priority() -> None:
    assert Pack().alpha == DEFAULT_ALPHA
