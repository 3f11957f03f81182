"""The schemas of job.toml and freetrain.toml, as editors use them.

They accept what the readers accept, and refuse each wrong key and type that these do.
"""

import re
import tomllib
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from jsonschema import Draft202012Validator, FormatChecker

from freetrain.config.document import BaseFolders
from freetrain.config.job import TrainerJob, render_job
from freetrain.config.schema import Described, json_schema, schema_line, schema_text
from freetrain.config.site import parse_site
from freetrain.errors import BadConfigurationError
from tests.config.job_files import LEAST, WHOLE, pack_file, parse, trainer_jobs

TOP = Path(__file__).resolve().parents[2]
PLACES = BaseFolders(Path("/work"), Path("/home/ada"))
VALIDATORS = {
    kind: Draft202012Validator(json_schema(kind), format_checker=FormatChecker())
    for kind in Described
}


def mistakes(kind: Described, text: str) -> list[str]:
    """Return the schema's complaints of a file; a time is a text to editors."""
    content = {key: _plain(value) for key, value in tomllib.loads(text).items()}
    return [error.message for error in VALIDATORS[kind].iter_errors(content)]


def _plain(value: Any) -> Any:  # noqa: ANN401 - what TOML has
    return value.isoformat() if isinstance(value, datetime) else value


def guide(title: str) -> list[str]:
    pages = ("job-file.md", "own-program.md", "priorities.md")
    text = "".join((TOP / "docs" / "guide" / name).read_text() for name in pages)
    blocks = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    return [block for block in blocks if re.search(title, block, re.MULTILINE)]


@pytest.mark.parametrize("kind", Described)
def test_the_file_that_ships_is_what_the_command_shows(kind: Described) -> None:
    path = schema_line(kind).removeprefix("#:schema file://").rstrip("\n")

    assert Path(path).read_text("utf-8") == schema_text(kind)
    Draft202012Validator.check_schema(json_schema(kind))


@pytest.mark.parametrize(
    "text",
    [
        *(path.read_text() for path in sorted(TOP.glob("examples/*/job.toml"))),
        *(
            (TOP / f"examples/pack/{name}.toml").read_text()
            for name in ("wine", "cancer")
        ),
        *guide(r"^name = "),
        LEAST,
        WHOLE,
        pack_file(),
    ],
)
def test_job_files_of_examples_guide_and_tests_fit(text: str) -> None:
    assert mistakes(Described.JOB, text) == []


@given(trainer_jobs())
def test_every_job_that_is_rendered_fits(job: TrainerJob) -> None:
    assert mistakes(Described.JOB, render_job(job)) == []


def test_files_of_sites_in_the_guide_fit() -> None:
    texts = [text for text in guide(r"^\[(lease|planner)\]") if "[nodes]" not in text]

    assert len(texts) >= 1
    for text in texts:
        parse_site(text.encode(), path="freetrain.toml", places=PLACES)
        assert mistakes(Described.SITE, text) == []


WRONG_IN_JOBS = [
    'nmae = "a"',
    "name = 1",
    'name = "a/b"',
    "command = 1",
    "command = []",
    'elastic = "no"',
    "environment = { A = 1 }",
    'environment = { SLURM_X = "1" }',
    'weight = "much"',
    "weight = 0",
    'order = "later"',
    'scaling = { "0" = 1.0 }',
    "deadline = 3",
    "[nodes]\nmin = 0\nmax = 1",
    "[nodes]\nmax = 1.5",
    "[nodes]\nmaximum = 4",
    "[nodes]\nmin = 1",
    '[nodes]\nmax = 2\nsizes = "powers"',
    "[nodes]\nmax = 2\nsizes = [0]",
    "[nodes]\nmax = 2\ngpus_per_lease = 65",
    '[nodes]\nmax = 2\nmemory = "64GB"',
    '[nodes]\nmax = 2\nfeatures = "ib"',
    "[launch]\nlauncher = 1",
    '[launch]\nahead = "yes"',
    "[launch]\nprocesses_per_node = 0",
    '[launch]\noptions = "--bind-to core"',
    '[container]\nimage = "a"',
    '[container]\nimage = "a"\nruntime = "docker"',
    "[work]\nepochs = 1.5",
    "[work]\nsamples = -1",
    "[work]\ntime_limit = 10",
    '[checkpoint]\nevery = "10"',
    '[checkpoint]\nevery = "10 minutes"',
    "[checkpoint]\npath = 1",
    '[stop]\nsignal = "USR1"',
    "[restart]\nattempts = -1",
    'elastic = false\n[progress]\nformat = "xml"',
    "elastic = false\n[progress]\nfile = 'a'",
    "[quality]\nbetter = 'more'",
    "[target]\nfinal = 1",
    "[costs]\ngrow = 18",
    "nodes = 4",
]


@pytest.mark.parametrize("wrong", WRONG_IN_JOBS)
def test_the_schema_refuses_what_the_reader_of_jobs_refuses(wrong: str) -> None:
    text = _changed(wrong)

    with pytest.raises(BadConfigurationError):
        parse(text)
    assert mistakes(Described.JOB, text)


def _changed(wrong: str) -> str:
    """Return the least job file with *wrong* in place of its own keys."""
    first, separator, rest = wrong.partition("[")
    table = f"{separator}{rest}" if "\n" in wrong or wrong.startswith("[") else ""
    top = wrong if not table else first
    given = {line.split(" ")[0] for line in top.splitlines()}
    own = {"name": 'name = "a"', "command": 'command = "b"'}
    lines = [line for key, line in own.items() if key not in given]
    has_nodes = table.startswith("[nodes]") or "nodes" in given
    nodes = "" if has_nodes else "[nodes]\nmax = 4"
    return "\n".join([top, *lines, table, nodes])


WRONG_IN_SITES = [
    "state = 'a'",
    "state_directory = 1",
    "[lease]\nmode = 'take'",
    "[lease]\nnice = 0",
    "[lease]\npartition = 'a b'",
    "[lease]\nshortest = 120",
    "[lease]\nmemory = 64",
    "[caps]\nleases = -1",
    "[caps]\nlease = 1",
    "[holes]\nmargin = '5'",
    "[planner]\npolicy = 'best'",
    "[planner]\nlearn = 1",
    "[planner]\npriority_settings = { a = 'b' }",
    "[planner]\nsolver = 'gurobi'",
    "[starts]\npause_after = 0",
    "lease = 1",
]


@pytest.mark.parametrize("wrong", WRONG_IN_SITES)
def test_the_schema_refuses_what_the_reader_of_sites_refuses(wrong: str) -> None:
    with pytest.raises(BadConfigurationError):
        parse_site(wrong.encode(), path="freetrain.toml", places=PLACES)
    assert mistakes(Described.SITE, wrong)


@pytest.mark.parametrize("kind", Described)
def test_every_key_is_described(kind: Described) -> None:
    def undescribed(schema: Any) -> list[str]:  # noqa: ANN401 - JSON
        found = []
        for name, value in schema.get("properties", {}).items():
            found += [] if value.get("description") else [name]
            found += undescribed(value)
        return found

    assert set(undescribed(json_schema(kind))) <= {"name"}
