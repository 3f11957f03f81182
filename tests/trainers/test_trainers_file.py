"""Trainers files: their meaning, and the message about every mistake."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freetrain.errors import BadConfigurationError, MissingInputError
from freetrain.replay.trainers_file import KEYS, parse_trainers, read_trainers
from freetrain.text import EXPECTED, SECONDS, parse_duration, render_duration

GOOD = """
[[trainer]]
name = "bert"
count = 3
arrival = "2h"
every = "36s"
samples = 1.0e6
scaling = { "1" = 100.0, "2" = 190.0, "8" = 700.0 }
sizes = "powers-of-two"
max_nodes = 4
grow = "20s"
shrink = "10s"
start = "1min"
checkpoint_every = "0.5h"
fixed_nodes = 2
weight = 2

[[trainer]]
name = "vision"
samples = 130_000_000
model = "resnet18"
min_nodes = 4
"""


def refusal(text: str) -> str:
    with pytest.raises(BadConfigurationError) as refused:
        parse_trainers(text.encode(), path="t.toml")
    return str(refused.value)


def with_line(line: str) -> str:
    head = '[[trainer]]\nname = "a"\nsamples = 10\nmodel = "vgg16"\n'
    key = line.split(" ", maxsplit=1)[0]
    kept = [row for row in head.splitlines() if not row.startswith(f"{key} ")]
    return "\n".join([*kept, line])


def test_a_file_has_all_settings_of_a_trainer() -> None:
    *berts, vision = parse_trainers(GOOD.encode(), path="t.toml")

    assert [t.name for t in berts] == ["bert-1", "bert-2", "bert-3"]
    assert [t.arrival_s for t in berts] == [7200.0, 7236.0, 7272.0]
    first = berts[0]
    assert first.scaling.sizes == (1, 2, 4)
    assert first.scaling.samples_per_s[[0, 1, 2]].tolist() == [0, 100, 190]
    assert (first.costs.grow_s, first.costs.shrink_s) == (20.0, 10.0)
    assert (first.costs.start_s, first.costs.checkpoint_every_s) == (60.0, 1800.0)
    assert (first.samples, first.fixed_nodes, first.weight) == (1e6, 2, 2.0)
    assert vision.scaling.sizes == tuple(range(4, 65))
    assert vision.fixed_nodes is None


def test_settings_that_a_file_leaves_out_are_those_of_the_built_in_sets() -> None:
    (trainer,) = parse_trainers(with_line("weight = 1").encode(), path="t.toml")

    assert (trainer.costs.grow_s, trainer.costs.shrink_s) == (18.0, 12.0)
    assert (trainer.costs.start_s, trainer.costs.checkpoint_every_s) == (18.0, 60.0)
    assert (trainer.fixed_nodes, trainer.arrival_s) == (None, 0.0)


def test_copies_share_one_scaling_and_so_do_equal_tables() -> None:
    text = GOOD + GOOD.replace('"bert"', '"gpt"').replace('"vision"', '"image"')

    trainers = parse_trainers(text.encode(), path="t.toml")

    assert len({id(t.scaling) for t in trainers if t.scaling.model == "bert"}) == 1
    assert len({id(t.scaling) for t in trainers if t.scaling.model == "resnet18"}) == 1


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("grow = 18", "grow = 18, expected a duration with its unit (s, min, h, d)"),
        ('grow = "18"', 'grow = "18", expected a duration with its unit'),
        ('grow = "18m"', 'grow = "18m", expected a duration with its unit'),
        ('grow = "-5s"', 'grow = "-5s", expected a duration'),
        ("grwo = 18", "unknown key \"grwo\". Did you mean 'grow'?"),
        ("bananas = 1", 'unknown key "bananas". Known keys: name, count, arrival'),
        ("count = 0", "count = 0, expected a whole number from 1"),
        ("count = true", "count = true, expected a whole number from 1"),
        ("count = 1.5", "count = 1.5, expected a whole number from 1"),
        ("samples = nan", "samples = NaN, expected a number above 0"),
        ("samples = inf", "samples = Infinity, expected a number above 0"),
        ("samples = -1", "samples = -1, expected a number above 0"),
        (f"samples = 1{'0' * 400}", "expected a number above 0"),
        ('samples = "many"', 'samples = "many", expected a number above 0'),
        ("weight = 0", "weight = 0, expected a number above 0"),
        ("samples = 1e-300", "samples = 1e-300, expected a number from 0.001 to 1e+18"),
        ("samples = 1e19", "samples = 1e+19, expected"),
        ("weight = 1e300", "weight = 1e+300, expected"),
        ('model = "vgg61"', "Did you mean 'vgg16'?"),
        ("model = 3", "model = 3, expected one of AlexNet"),
        ('scaling = { "1" = 2 }', "expected either model or scaling, and not both"),
        ('name = "a b"', 'name = "a b", expected up to 64 letters, digits'),
        ('name = "a\\n"', 'name = "a\\n", expected up to 64 letters, digits'),
        ("max_nodes = 65", "max_nodes = 65, expected a whole number from 1 to 64"),
        ("min_nodes = 0", "min_nodes = 0, expected a whole number from 1 to 64"),
        ("sizes = [0]", 'sizes = [0], expected "powers-of-two" or a list of node'),
        ("sizes = []", 'sizes = [], expected "powers-of-two" or a list of node'),
        ('sizes = "odd"', 'sizes = "odd", expected "powers-of-two" or a list'),
        ("sizes = [true]", "sizes = [true], expected"),
        ("fixed_nodes = 65", "fixed_nodes = 65, expected a whole number from 1 to 64"),
    ],
)
def test_a_mistake_is_named_with_what_was_found_and_expected(
    line: str, message: str
) -> None:
    refused = refusal(with_line(line))

    assert message in refused
    assert refused.startswith("t.toml: trainer ")
    assert refused.endswith("No trainer of this file was used.")
    assert "\n" not in refused


@pytest.mark.parametrize(
    ("scaling", "message"),
    [
        ("3", "scaling = 3, expected samples a second by node count"),
        ("{ }", "scaling = {}, expected samples a second by node count"),
        ('{ "0" = 1.0 }', '"0" is no node count from 1'),
        ('{ "two" = 1.0 }', '"two" is no node count from 1'),
        ('{ "999999" = 1.0 }', '"999999" is no node count from 1'),
        ('{ "1" = -1.0 }', '{ "1" = 100.0, "2" = 190.0 }; for 1 nodes it has -1.0'),
        ('{ "1" = "fast" }', 'for 1 nodes it has "fast"'),
        ('{ "1" = 1e308 }', "scaling at 1 nodes = 1e+308, expected"),
    ],
)
def test_a_wrong_scaling_is_named(scaling: str, message: str) -> None:
    text = f'[[trainer]]\nname = "a"\nsamples = 10\nscaling = {scaling}\n'

    assert message in refusal(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file: no trainer found, expected [[trainer]] tables"),
        ("trainer = 3", "the file: no trainer found, expected [[trainer]] tables"),
        ("trainer = [3]", "the file: trainer is not a table, expected [[trainer]]"),
        ("[[trainers]]", "the file: unknown key \"trainers\". Did you mean 'trainer'?"),
        ("[[trainer]", "the file: this is not TOML: "),
        ("[[trainer]]", "trainer number 1: name is missing"),
        ('[[trainer]]\nname = "a"', 'trainer "a" (number 1): samples is missing'),
        ('[[trainer]]\nname="a"\nsamples=10', "expected either model or scaling"),
        (GOOD + GOOD, 'trainer "bert-1": 2 trainers have this name, expected one'),
        ((with_line("count = 100_000") + "\n") * 2, "more than 100000 trainers in one"),
        (
            with_line("sizes = [4]\nfixed_nodes = 2"),
            "fixed_nodes = 2, expected one of the sizes the trainer can run on",
        ),
        (
            with_line("sizes = [4]\nmin_nodes = 5"),
            'sizes = [4], expected "powers-of-two" or a list of node counts from 5',
        ),
        (
            with_line('sizes = "powers-of-two"\nmin_nodes = 33\nmax_nodes = 63'),
            "from 33 to 63",
        ),
        (with_line("min_nodes = 5\nmax_nodes = 4"), "min_nodes = 5 is above max_nodes"),
    ],
)
def test_a_file_that_describes_no_trainers_is_refused(text: str, message: str) -> None:
    assert message in refusal(text)


def test_a_file_that_is_not_text_is_refused() -> None:
    with pytest.raises(BadConfigurationError, match="not text in UTF-8"):
        parse_trainers(b"\xff\xfe\x00", path="t.toml")


def test_a_missing_file_and_a_folder_are_missing_input(tmp_path: Path) -> None:
    message = r"cannot read trainers file {}: .* built-in sets hps, imagenet\.$"
    with pytest.raises(MissingInputError, match=message.format(r"gone\.toml")):
        read_trainers(tmp_path / "gone.toml", named="gone.toml")
    with pytest.raises(MissingInputError, match=message.format(".*")):
        read_trainers(tmp_path)


def test_an_endless_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "huge.toml"
    with path.open("wb") as file:
        file.truncate(17 * 2**20)

    with pytest.raises(BadConfigurationError, match=r"larger than 16 MiB.* `count`"):
        read_trainers(path)


@given(
    st.integers(0, 10**9),
    st.sampled_from(sorted(SECONDS)),
    st.sampled_from(["", " "]),
)
def test_a_duration_is_its_number_times_its_unit(
    number: int, unit: str, gap: str
) -> None:
    assert parse_duration(f"{number}{gap}{unit}") == number * SECONDS[unit]


@given(st.text())
def test_any_text_is_a_duration_or_refused_with_what_is_expected(text: str) -> None:
    try:
        seconds = parse_duration(text)
    except ValueError as refused:
        message = str(refused)
    else:
        message = "" if seconds >= 0 else "a negative duration"
    assert message in {"", f"expected {EXPECTED}"}


@given(st.floats(min_value=0.01, max_value=1e8))
def test_a_rendered_duration_reads_back_as_about_the_same(seconds: float) -> None:
    assert parse_duration(render_duration(seconds)) == pytest.approx(seconds, rel=1e-2)


toml_values = st.recursive(
    st.one_of(
        st.booleans().map(lambda value: str(value).lower()),
        st.integers(-(10**20), 10**20).map(str),
        st.floats().map(str),
        st.sampled_from(['"18s"', '"x"', '"vgg16"', '"powers-of-two"']),
    ),
    lambda inner: st.lists(inner, max_size=3).map(lambda v: f"[{', '.join(v)}]"),
    max_leaves=4,
)


@given(
    st.dictionaries(
        st.sampled_from([key for key in KEYS if key != "scaling"]),
        toml_values,
        max_size=8,
    )
)
def test_any_table_gives_trainers_or_one_clear_line(table: dict[str, str]) -> None:
    base = {"name": '"a"', "samples": "10", "model": '"vgg16"', "count": "1"}
    rows = (base | table | {"count": table.get("count", "1")[:3]}).items()
    text = "[[trainer]]\n" + "\n".join(f"{key} = {value}" for key, value in rows)
    message = ""
    try:
        trainers = parse_trainers(text.encode(), path="t.toml")
    except BadConfigurationError as refused:
        message, trainers = str(refused), ()
    assert "\n" not in message
    assert bool(trainers) != bool(message)
    if trainers:
        assert all(t.fixed_nodes in (None, *t.scaling.sizes) for t in trainers)
        assert all(t.samples > 0 and t.arrival_s >= 0 for t in trainers)


@given(st.binary(max_size=200))
def test_any_bytes_give_trainers_or_one_clear_line(content: bytes) -> None:
    with pytest.raises(BadConfigurationError):
        parse_trainers(content, path="t.toml")
