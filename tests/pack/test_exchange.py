"""Packs that exchange members: each is in one pack at a time, and loses no step."""

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pack.packs import COMMAND, PATIENCE_S, Stage, staged, until

SAMPLES = 40
COUNTS = """
import fcntl, pathlib, time
import numpy as np
from freetrain import elastic

lock = pathlib.Path(__file__ + ".lock").open("w")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    pathlib.Path(__file__ + ".twice").touch()
over = pathlib.Path(__file__).with_name("over")

def used(chunk):
    return np.bincount(chunk.indices, minlength={samples})

with elastic.join(commit_every_s=1e6) as run:
    state = run.restore({{"used": np.zeros({samples}, np.int64)}})
    for batch in run.batches(samples={samples}, global_batch=4, epochs={epochs}):
        state["used"] += np.asarray(run.sum(batch, used), np.int64).reshape(-1)
        time.sleep(0.0 if over.exists() else 0.05)
        run.end_step(state, loss={loss})
    if run.finished:
        print("used", *state["used"], flush=True)
"""
"""It commits when it is asked to stop, and never before: losses show."""
EPOCHS = 40

DIES = """
import os, signal, sys
from importlib import import_module
from freetrain.pack.run import main

_, pack, module, kind, method, when = sys.argv
owner = getattr(import_module(module), kind)
usual = getattr(owner, method)

def dies(self, *words, **more):
    if when == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    usual(self, *words, **more)
    os.kill(os.getpid(), signal.SIGKILL)

setattr(owner, method, dies)
sys.exit(main([pack]))
"""


class TwoPacks:
    """Two packs on this machine: all members begin in ``a``, and ``b`` has none."""

    def __init__(self, folder: Path, a: Stage, b: Stage) -> None:
        self.folder, self.a, self.b = folder, a, b

    def text(self, *names: str, more: str = "") -> str:
        members = ", ".join(f'"{self.a.folder}/{name}.toml"' for name in names)
        return (
            f'members = [{members}]\nexchange = "{self.folder}/exchange"\n'
            f'interval = "0.5s"\nstay = "600s"\n{more}'
        )

    def counting(self, *names: str, flat: str = "", more: str = "") -> str:
        """Return the text of a pack of such members, of which one does not grow."""
        for name in names:
            loss = "1.0 if batch.step else 9.0" if name == flat else "0.99**batch.step"
            program = COUNTS.format(samples=SAMPLES, epochs=EPOCHS, loss=loss)
            self.a.job(name, program)
        return self.text(*names, more=more)

    def finish(self) -> None:
        (self.a.folder / "over").touch()

    def used(self, name: str) -> set[int]:
        """How often samples were used, as the member says whenever it is finished."""
        logs = self.folder / "exchange" / "members" / name / "logs"
        said = [path.read_text().partition("used")[2] for path in logs.glob("*.log")]
        return {int(times) for text in said for times in text.split()}

    def where(self, name: str) -> list[str]:
        """The packs, ``a`` or ``b``, in which a member runs or ended, by records."""
        return [
            pack
            for pack, stage in (("a", self.a), ("b", self.b))
            if stage.record().get("members", {}).get(name, {}).get("generation")
            and stage.ends()[name] != "with another pack"
        ]


@pytest.fixture
def packs(tmp_path: Path) -> Iterator[TwoPacks]:
    for name in "ab":
        (tmp_path / name).mkdir()
    with staged(tmp_path / "a") as a, staged(tmp_path / "b") as b:
        yield TwoPacks(tmp_path, a, b)
    assert not Stage(tmp_path).processes()


def stop(stage: Stage, pack: subprocess.Popen[str]) -> str:
    pack.send_signal(signal.SIGTERM)
    return stage.end(pack)


def all_finished(packs: TwoPacks, *names: str) -> bool:
    return all(
        any(
            stage.record()["members"].get(name, {}).get("end") == "finished"
            for stage in (packs.a, packs.b)
        )
        for name in names
    )


def test_a_member_of_a_crowded_pack_goes_on_in_another_and_no_step_is_lost(
    packs: TwoPacks,
) -> None:
    names = ("one", "two", "three")
    a = packs.a.start(packs.counting(*names))
    until(lambda: bool(packs.a.record()) and len(packs.a.ends()) == len(names))
    b = packs.b.start(packs.text())
    until(lambda: any(packs.where(name) == ["b"] for name in names))

    packs.finish()
    until(lambda: all_finished(packs, *names))
    said = stop(packs.a, a) + stop(packs.b, b)

    assert [packs.used(name) for name in names] == [{EPOCHS}] * 3, said
    assert not list(packs.a.folder.glob("*.twice"))
    # Steps count in the pack that did them: together these are all that there were.
    done = [stage.outcome(1)["step"] for stage in (packs.a, packs.b)]
    assert sum(done) == len(names) * EPOCHS * SAMPLES // 4
    assert min(done) > 0
    assert [s.outcome(1)["outcome"] for s in (packs.a, packs.b)] == ["finished"] * 2


def test_by_specon_a_member_moves_that_does_not_grow_any_more(packs: TwoPacks) -> None:
    names, more = ("one", "flat", "three"), 'moves = "specon"\n'
    a = packs.a.start(packs.counting(*names, flat="flat", more=more))
    b = packs.b.start(packs.text(more=more))

    until(lambda: packs.where("flat") == ["b"])

    assert [packs.where(name) for name in names] == [["a"], ["b"], ["a"]]
    stop(packs.a, a)
    stop(packs.b, b)


def test_a_trainer_that_two_packs_name_is_in_one_of_them(packs: TwoPacks) -> None:
    packs.a.job("plain", "print('up', flush=True)\nimport time; time.sleep(600)")
    a = packs.a.start(packs.text("plain"))
    until(lambda: packs.where("plain") == ["a"])

    code, said = packs.b.run_to_end(packs.text("plain").replace("600s", "0s"))

    assert code == 0, said
    assert packs.b.ends() == {"plain": "with another pack"}
    assert packs.b.outcome(1)["step"] == 0
    stop(packs.a, a)


def test_two_trainers_of_one_name_are_told_apart(packs: TwoPacks) -> None:
    for stage in (packs.a, packs.b):
        stage.job("same", "print('up')", more="[restart]\nattempts = 1\n")
    packs.a.run_to_end(packs.text("same").replace("600s", "0s"))

    other = packs.text("same").replace(str(packs.a.folder), str(packs.b.folder))
    code, said = packs.b.run_to_end(other.replace("600s", "0s"))

    assert code == 1
    assert f"already, from {packs.a.folder}/same.toml" in said


def test_a_damaged_owner_file_is_named_and_its_member_not_started(
    packs: TwoPacks,
) -> None:
    packs.a.job("a", "print('up')", more="[restart]\nattempts = 1\n")
    owner = packs.folder / "exchange" / "members" / "a" / "owners" / "0000000001.json"
    owner.parent.mkdir(parents=True)
    owner.write_text('{"number": 1')

    code, said = packs.a.run_to_end(packs.text("a").replace("600s", "0s"))

    assert code == 1
    assert f"the owner file {owner} cannot be read" in said
    assert not packs.a.log("a")


def test_a_pack_is_not_over_before_it_knows_which_members_it_has(
    packs: TwoPacks,
) -> None:
    packs.a.job("a", "print('up')")
    unreadable = packs.folder / "exchange" / "members" / "b" / "owners"
    unreadable.parent.mkdir(parents=True)
    unreadable.touch()

    a = packs.a.start(packs.text("a").replace("600s", "0s"))
    until(lambda: bool(packs.a.record()) and packs.a.ends() == {"a": "finished"})
    with pytest.raises(subprocess.TimeoutExpired):
        a.wait(3.0)
    unreadable.unlink()

    assert "the exchange cannot be read now" in packs.a.end(a)
    assert a.returncode == 0


@pytest.mark.long
@pytest.mark.parametrize(
    ("dies", "where"),
    [
        ("a", "freetrain.pack.run Workers ask_to_stop after"),
        ("a", "freetrain.pack.exchange PackExchange offer before"),
        ("a", "freetrain.pack.exchange PackExchange offer after"),
        ("b", "freetrain.pack.exchange PackExchange claim before"),
        ("b", "freetrain.pack.exchange PackExchange claim after"),
        ("b", "freetrain.pack.run Workers start before"),
        ("b", "freetrain.pack.run Workers start after"),
    ],
)
def test_a_pack_killed_at_any_step_of_a_move_loses_no_member_and_doubles_none(
    packs: TwoPacks, dies: str, where: str
) -> None:
    names = ("one", "two", "three")
    texts = {"a": packs.counting(*names), "b": packs.text()}
    stages = {"a": packs.a, "b": packs.b}
    by = {dies: ("-c", DIES, *where.split())}
    running = {
        name: stage.start(texts[name], by=by.get(name, COMMAND))
        for name, stage in stages.items()
    }
    assert running[dies].wait(PATIENCE_S) == -signal.SIGKILL
    running[dies] = stages[dies].start(texts[dies])

    packs.finish()
    until(lambda: all_finished(packs, *names))
    # A pack sees at its next look that another one took what it offered.
    until(lambda: [len(packs.where(name)) for name in names] == [1] * 3)
    said = "".join(stop(stage, running[name]) for name, stage in stages.items())

    assert [packs.used(name) for name in names] == [{EPOCHS}] * 3, said
    assert not list(packs.a.folder.glob("*.twice"))
