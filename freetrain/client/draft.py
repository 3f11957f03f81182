"""A job file made of a command as its user types it elsewhere.

``draft_of`` takes ``torchrun``, ``accelerate launch``, ``mpirun`` or a plain program,
with the launcher's own words, and what ``freetrain.client.script`` saw of the script.
Words that say how large the world is or where it meets are FreeTrain's to say: each is
translated, or taken out with a note, or refused where it contradicts another one.
``job_text`` writes the draft with a comment at each line that a user should check.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from freetrain.client.script import NOTHING_SEEN, ScriptView, look_at
from freetrain.config.document import toml_value
from freetrain.config.schema import Described, schema_line
from freetrain.errors import UsageError
from freetrain.text import shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

Sizes = tuple[int, int]
"""The fewest and the most nodes, or leases of GPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What a user says beside the command; None or "" where nothing is said.

    Attributes:
        every: How often the program saves, as a job file has it.
    """

    name: str = ""
    sizes: Sizes | None = None
    gpus_per_lease: int | None = None
    checkpoint: str = ""
    every: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A job file to be.

    Attributes:
        program: The script, for messages; or the program.
        per_lease: Processes in each lease; None for the launcher's usual number.
        sizes: None where no number was given.
        checkpoint: Where it saves; "" where nobody said and nothing was seen.
        is_place_guessed: Whether that was only seen.
        every: How often; "" likewise.
        notes: What became of the command's words, and what its user should know.
    """

    name: str
    command: tuple[str, ...]
    program: str
    view: ScriptView
    launcher: str
    executable: str = ""
    options: tuple[str, ...] = ()
    per_lease: int | None = None
    environment: tuple[tuple[str, str], ...] = ()
    sizes: Sizes | None = None
    gpus_per_lease: int | None = None
    checkpoint: str = ""
    is_place_guessed: bool = False
    every: str = ""
    notes: tuple[str, ...] = ()

    @property
    def elastic(self) -> bool:
        """Whether the program uses ``freetrain.elastic``."""
        return self.view.is_elastic

    @property
    def least_and_most(self) -> Sizes:
        """The fewest and the most leases that it runs on; one where nothing says."""
        return self.sizes or (1, 1)

    @property
    def ranks_per_lease(self) -> int:
        """How many processes each lease starts."""
        return self.per_lease or self.gpus_per_lease or 1

    @property
    def fitting_sizes(self) -> tuple[int, ...]:
        """The sizes whose ranks have equal shares of a step, as far as it shows."""
        least, most = self.least_and_most
        batch = self.view.global_batch if self.view.is_integrated else None
        return tuple(
            n
            for n in range(least, most + 1)
            if batch is None or batch % (n * self.ranks_per_lease) == 0
        )

    @property
    def is_one_process(self) -> bool:
        """Whether nothing shows that several processes would share the work."""
        return self.launcher == "srun" and not self.view.shares_work

    @property
    def has_all_do_the_same(self) -> bool:
        """Whether several processes start, and nothing seen shows that they share."""
        is_seen = self.view is not NOTHING_SEEN and not self.view.problem
        several = self.ranks_per_lease * self.least_and_most[1] > 1
        is_started = self.launcher in {"torchrun", "mpirun"}
        return is_started and several and is_seen and not self.view.shares_work


# ----------------------------------------------------------------------
# Launchers and their words


@dataclass(frozen=True, slots=True, kw_only=True)
class _Launch:
    """A command without its launcher."""

    command: tuple[str, ...]
    launcher: str = ""
    executable: str = ""
    options: tuple[str, ...] = ()
    per_lease: int | None = None
    sizes: Sizes | None = None
    environment: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()


_NOTHING = "Nothing was written or submitted."
_NOT_TRANSLATED = {
    "srun": "leave srun out: FreeTrain starts one process in each lease by itself",
    "sbatch": "name the training program itself, without the batch script",
    "deepspeed": "use torchrun in place of deepspeed; deepspeed.initialize takes it",
    "horovodrun": "use mpirun in place of horovodrun",
}
_PYTHON = re.compile(r"python[0-9.]*")
_TORCHRUN_MODULE = ("-m", "torch.distributed.run")
_OLD_MODULE = ("-m", "torch.distributed.launch")
_ASSIGNED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
"""A variable before a command, as a shell takes it."""


def _launch_of(words: tuple[str, ...], wishes: Wishes) -> _Launch:
    program = Path(words[0]).name
    if program in _NOT_TRANSLATED:
        raise UsageError(f"{program}: {_NOT_TRANSLATED[program]}. {_NOTHING}")
    if program == "torchrun":
        return _torchrun(words[0], words[1:], python=_python_of(words[0]))
    if _PYTHON.fullmatch(program) and words[1:3] == _TORCHRUN_MODULE:
        return _torchrun("torchrun", words[3:], python=words[0])
    if _PYTHON.fullmatch(program) and words[1:3] == _OLD_MODULE:
        return _torchrun("torchrun", _without_use_env(words[3:]), python=words[0])
    if program == "accelerate" and words[1:2] == ("launch",):
        return _accelerate(words[2:], python=_python_of(words[0]))
    if program in {"mpirun", "mpiexec", "mpiexec.hydra"}:
        return _mpirun(words[0], words[1:], sizes=wishes.sizes)
    return _Launch(command=words)


def _python_of(program: str) -> str:
    """Return the Python beside a launcher that is named by its path, or the usual."""
    return str(Path(program).with_name("python")) if "/" in program else "python"


class _Words:
    """The options of a launcher, taken apart.

    *arities* has the number of values by option. An unknown option is taken along if
    its value is joined by ``=``; else it could not be told from the program, and
    *advice* says what to do about it.
    """

    def __init__(
        self,
        program: str,
        words: Sequence[str],
        arities: Mapping[str, int],
        *,
        advice: str = "Join its value by =, or write it into [launch] options of a "
        "job file.",
    ) -> None:
        self._program = program
        self._found: list[tuple[str, tuple[str, ...], tuple[str, ...]]] = []
        rest = list(words)
        while rest and rest[0].startswith("-") and rest[0] != "-":
            word = rest.pop(0)
            if word == "--":
                break
            name, joined, value = word.partition("=")
            name = name.replace("_", "-")
            if name not in arities and not joined:
                raise UsageError(
                    f"{program}'s option {word} is not known here. {_NOTHING} {advice}"
                )
            count = 0 if joined else arities[name]
            values = (value,) if joined else tuple(rest[:count])
            if len(values) < count:
                raise UsageError(f"{program}: {word} lacks its value. {_NOTHING}")
            self._found.append((name, values, (word, *rest[:count])))
            del rest[:count]
        if not rest:
            raise UsageError(f"{program} has no program to start. {_NOTHING}")
        self.rest = tuple(rest)

    def take(self, *names: str) -> tuple[str, ...] | None:
        """Return the values of the last of these options; None where none is given."""
        given = [values for name, values, _ in self._found if name in names]
        self._found = [each for each in self._found if each[0] not in names]
        return given[-1] if given else None

    def number(self, *names: str) -> int | None:
        """Return the number that the last of these options has."""
        values = self.take(*names)
        if values is None:
            return None
        if not re.fullmatch(r"[1-9][0-9]{0,5}", values[0], re.ASCII):
            raise UsageError(
                f"{self._program}'s {names[0]} is {shown(values[0])}, and FreeTrain "
                f"needs a number. {_NOTHING} Write one."
            )
        return int(values[0])

    def take_out(self, names: Sequence[str], why: str) -> tuple[str, ...]:
        """Take these options out; return the note about it, if any was given."""
        given = [words for name, _, words in self._found if name in names]
        self._found = [each for each in self._found if each[0] not in names]
        said = ", ".join(shlex.join(words) for words in given)
        return (f"{self._program}'s {said}: taken out; {why}",) if given else ()

    @property
    def left(self) -> tuple[str, ...]:
        """The words of all options that were not taken."""
        return tuple(word for _, _, words in self._found for word in words)


_TORCHRUN_FLAGS = ("--standalone", "-m", "--module", "--no-python", "--run-path")
_TORCHRUN_VALUES = (
    "--nnodes",
    "--nproc-per-node",
    "--rdzv-backend",
    "--rdzv-endpoint",
    "--rdzv-id",
    "--rdzv-conf",
    "--max-restarts",
    "--monitor-interval",
    "--start-method",
    "--event-log-handler",
    "--role",
    "--log-dir",
    "-r",
    "--redirects",
    "-t",
    "--tee",
    "--local-ranks-filter",
    "--node-rank",
    "--master-addr",
    "--master-port",
    "--local-addr",
    "--logs-specs",
    "--numa-binding",
    "--signals-to-handle",
)
_TORCHRUN = dict.fromkeys(_TORCHRUN_FLAGS, 0) | dict.fromkeys(_TORCHRUN_VALUES, 1)
_RENDEZVOUS = (
    "--standalone",
    "--rdzv-backend",
    "--rdzv-endpoint",
    "--rdzv-id",
    "--rdzv-conf",
    "--node-rank",
    "--master-addr",
    "--master-port",
    "--local-addr",
)
_AS_MANY_AS_GPUS = {"gpu", "auto"}


def _without_use_env(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return torchrun's words; its predecessor is like it with ``--use-env`` alone."""
    option = "--use-env"
    found = _Words("torch.distributed.launch", words, _TORCHRUN | {option: 0})
    if found.take(option) is None:
        raise UsageError(
            f"python -m torch.distributed.launch gives --local-rank to the script, and "
            f"torchrun does not. {_NOTHING} Have the script read the variable "
            f"LOCAL_RANK, and add {option} or start it by torchrun."
        )
    return (*found.left, "--", *found.rest)


def _torchrun(program: str, words: Sequence[str], *, python: str) -> _Launch:
    found = _Words("torchrun", words, _TORCHRUN)
    nnodes = found.take("--nnodes")
    sizes = None if nnodes is None else parse_sizes(nnodes[0], named="--nnodes")
    per_node = found.take("--nproc-per-node")
    notes = (
        *found.take_out(_RENDEZVOUS, "FreeTrain has the nodes' torchruns meet"),
        *found.take_out(
            ["--max-restarts"],
            "[restart] attempts says how often FreeTrain starts it again",
        ),
    )
    if found.take("--run-path") is not None:
        raise UsageError(f"torchrun's --run-path cannot be kept. {_NOTHING} Leave it.")
    command = found.rest
    is_module = found.take("-m", "--module") is not None
    if found.take("--no-python") is None:
        command = (python, "-u", *(("-m",) if is_module else ()), *command)
    return _Launch(
        command=command,
        launcher="torchrun",
        executable=program if "/" in program else "",
        options=found.left,
        per_lease=None if per_node is None else _ranks(per_node[0]),
        sizes=sizes,
        notes=notes,
    )


_BY_GPUS = -1
"""Stands for as many processes as a lease has GPUs, or as its launcher finds room."""


def _ranks(text: str) -> int:
    if text in _AS_MANY_AS_GPUS:
        return _BY_GPUS
    if not re.fullmatch(r"[1-9][0-9]{0,3}", text, re.ASCII):
        raise UsageError(
            f"torchrun's --nproc-per-node is {shown(text)}, and FreeTrain needs a "
            f"number. {_NOTHING} Write one, or leave it out."
        )
    return int(text)


_ACCELERATE_FLAGS = ("--cpu", "--multi-gpu", "--same-network", "-m", "--module")
_ACCELERATE_VALUES = (
    "--config-file",
    "--num-processes",
    "--num-machines",
    "--machine-rank",
    "--main-process-ip",
    "--main-process-port",
    "--rdzv-backend",
    "--rdzv-conf",
    "--gpu-ids",
    "--mixed-precision",
    "--gradient-accumulation-steps",
)
_ACCELERATE = dict.fromkeys(_ACCELERATE_FLAGS, 0) | dict.fromkeys(_ACCELERATE_VALUES, 1)
_ACCELERATE_PLACES = (
    "--multi-gpu",
    "--same-network",
    "--machine-rank",
    "--main-process-ip",
    "--main-process-port",
    "--rdzv-backend",
    "--rdzv-conf",
    "--gpu-ids",
)


_IN_ITS_CODE = "Start the script by torchrun, with such settings in its code."


def _accelerate(words: Sequence[str], *, python: str) -> _Launch:
    """Translate into torchrun: what accelerate adds to it are these variables."""
    found = _Words("accelerate launch", words, _ACCELERATE, advice=_IN_ITS_CODE)
    if found.take("--config-file") is not None:
        raise UsageError(
            f"accelerate launch's --config_file cannot be kept: torchrun starts the "
            f"script, and reads no such file. {_NOTHING} Leave it out, and give its "
            f"num_processes, num_machines, mixed_precision and "
            f"gradient_accumulation_steps as options; what else it says, such as FSDP "
            f"or DeepSpeed, belongs into the script's code."
        )
    machines = found.number("--num-machines")
    processes = found.number("--num-processes")
    if processes is not None and processes % (machines or 1):
        raise UsageError(
            f"--num_processes {processes} do not divide among --num_machines "
            f"{machines}. {_NOTHING} FreeTrain starts as many on each node."
        )
    variables = {}
    for option, variable in (
        ("--mixed-precision", "ACCELERATE_MIXED_PRECISION"),
        ("--gradient-accumulation-steps", "ACCELERATE_GRADIENT_ACCUMULATION_STEPS"),
    ):
        if (value := found.take(option)) is not None:
            variables[variable] = value[0]
    per_lease = _BY_GPUS if processes is None else processes // (machines or 1)
    if found.take("--cpu") is not None:
        variables["ACCELERATE_USE_CPU"] = "true"
        per_lease = 1 if processes is None else per_lease
    notes = (
        "accelerate launch: torchrun starts it; accelerate's own file is not read",
        *found.take_out(_ACCELERATE_PLACES, "FreeTrain has the nodes meet"),
    )
    is_module = found.take("-m", "--module") is not None
    if found.left:
        raise UsageError(
            f"accelerate launch's {shlex.join(found.left)} cannot be translated. "
            f"{_NOTHING} {_IN_ITS_CODE}"
        )
    return _Launch(
        command=(python, "-u", *(("-m",) if is_module else ()), *found.rest),
        launcher="torchrun",
        per_lease=per_lease,
        sizes=None if machines is None else (machines, machines),
        environment=tuple(variables.items()),
        notes=notes,
    )


_PER_NODE = ("-npernode", "--npernode", "-N", "-ppn", "--ppn", "-perhost")
_RANKS = ("-n", "-np", "--np")
_HOSTS = ("--hostfile", "-hostfile", "--machinefile", "-machinefile", "-f")
_NAMED_HOSTS = ("--host", "-host", "-H", "-hosts")
_MPIRUN = {
    **dict.fromkeys((*_PER_NODE, *_RANKS, *_HOSTS, *_NAMED_HOSTS), 1),
    **dict.fromkeys(("--mca", "-mca", "--prtemca", "-genv", "-env"), 2),
    **dict.fromkeys(("-x", "--map-by", "--bind-to", "-bind-to", "--rank-by"), 1),
    **dict.fromkeys(("--output", "--timeout", "-genvlist", "-map-by"), 1),
    **dict.fromkeys(("--oversubscribe", "--report-bindings", "--tag-output"), 0),
    **dict.fromkeys(("--allow-run-as-root", "-genvall", "-l", "-v", "-q"), 0),
}


def _mpirun(program: str, words: Sequence[str], *, sizes: Sizes | None) -> _Launch:
    if ":" in words:
        raise UsageError(
            f"mpirun starts several programs here, apart by a colon. {_NOTHING} "
            f"FreeTrain starts one."
        )
    found = _Words("mpirun", words, _MPIRUN)
    ranks, per_node = found.number(*_RANKS), found.number(*_PER_NODE)
    mapped, kept = _mapping(found.take("--map-by", "-map-by"))
    per_node = mapped or per_node
    notes = found.take_out((*_HOSTS, *_NAMED_HOSTS), "FreeTrain names the nodes")
    if per_node is None and (sizes == (1, 1) or (sizes is None and not notes)):
        per_node = ranks
    if ranks is not None and per_node is None:
        raise UsageError(
            f"mpirun -n {ranks} says how many ranks there are, and that changes with "
            f"the nodes. {_NOTHING} Say how many on each node instead: -npernode N "
            f"(Open MPI) or -ppn N; or add --nodes 1 for all on one node."
        )
    if ranks not in {None, per_node}:
        notes += (f"mpirun's -n {ranks}: taken out; {per_node} start on each node",)
    return _Launch(
        command=found.rest,
        launcher="mpirun",
        executable="" if program == "mpirun" else program,
        options=(*found.left, *kept),
        per_lease=_BY_GPUS if per_node is None else per_node,
        notes=notes,
    )


def _mapping(values: tuple[str, ...] | None) -> tuple[int | None, tuple[str, ...]]:
    """Return the ranks on each node by ``--map-by``, and the words to be kept of it."""
    if values is None:
        return None, ()
    kept = ("--map-by", *values)
    per_node = re.fullmatch(r"ppr:([1-9][0-9]{0,5}):node([:,].*)?", values[0], re.ASCII)
    if per_node is not None:
        return int(per_node[1]), kept if per_node[2] else ()
    if re.search(r"ppr:|pe=", values[0], re.IGNORECASE):
        raise UsageError(
            f"mpirun's --map-by {shown(values[0])} does not say how many ranks a node "
            f"has. {_NOTHING} Write ppr:N:node, with :PE=M behind it for M cores each."
        )
    return None, kept


# ----------------------------------------------------------------------
# From the command to the draft


def parse_sizes(text: str, *, named: str) -> Sizes:
    """Return the sizes that *text*, ``8`` or ``1:8``, says.

    Raises:
        UsageError: It says none.
    """
    found = re.fullmatch(r"([1-9][0-9]{0,5})(?::([1-9][0-9]{0,5}))?", text, re.ASCII)
    least, most = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
    if least > most:
        raise UsageError(
            f"{named} {shown(text)} is neither a number of nodes nor MIN:MAX, such as "
            f"1:8. {_NOTHING}"
        )
    return least, most


def draft_of(
    words: Sequence[str], wishes: Wishes, *, folder: Path, is_typed: bool = True
) -> Draft:
    """Return the draft for the command *words*, started in *folder*.

    Where it was not typed, but is a guess for a script, the launcher is one, too.

    Raises:
        FreeTrainError: They cannot be translated, contradict each other, or name a
            script that is not there.
    """
    _check_unicode(words, wishes)
    variables, words = _variables_of(words)
    launch = _launch_of(words, wishes)
    script, program, arguments = _script_of(launch.command)
    view = NOTHING_SEEN if script is None else look_at(folder / script)
    seen = "" if view.is_elastic else view.saves_to(arguments)
    draft = Draft(
        name=wishes.name or _name_of(program),
        command=launch.command,
        program=program,
        view=view,
        launcher=launch.launcher or _launcher_for(view, is_typed=is_typed),
        executable=launch.executable,
        options=launch.options,
        per_lease=_per_lease(launch, wishes),
        environment=(*launch.environment, *_unbuffered(launch.command), *variables),
        sizes=wishes.sizes or launch.sizes,
        gpus_per_lease=wishes.gpus_per_lease,
        checkpoint=wishes.checkpoint or seen,
        is_place_guessed=not wishes.checkpoint,
        every=wishes.every,
        notes=launch.notes,
    )
    if wishes.sizes and launch.sizes and wishes.sizes != launch.sizes:
        said = ":".join(map(str, launch.sizes))
        note = f"the launcher's number of nodes, {said}: taken out; --nodes counts"
        draft = replace(draft, notes=(*draft.notes, note))
    return replace(draft, notes=(*draft.notes, *_cautions(draft, arguments)))


def _check_unicode(words: Sequence[str], wishes: Wishes) -> None:
    for word in (*words, wishes.name, wishes.checkpoint, wishes.every):
        try:
            word.encode()
        except UnicodeEncodeError as error:
            raise UsageError(
                f"{shown(word)} is not UTF-8, as all of a job file must be. {_NOTHING} "
                f"Name files and arguments in UTF-8."
            ) from error


def _variables_of(
    words: Sequence[str],
) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    """Return the variables that *words* begin with, and the words after them.

    They may stand behind ``env``, unless that has options.
    """
    if Path(words[0]).name == "env" and words[1:] and not words[1].startswith("-"):
        words = words[1:]
    found = []
    for word in words:
        if (assigned := _ASSIGNED.fullmatch(word)) is None:
            break
        found.append((assigned[1], assigned[2]))
    if len(found) == len(words):
        raise UsageError(
            f"{shlex.join(words)} names no program to start. {_NOTHING} Add it."
        )
    return tuple(found), tuple(words[len(found) :])


def without_guessed_place(draft: Draft) -> Draft:
    """Return *draft* without the place at which its program seems to save."""
    note = (
        f"{draft.program} seems to save to {shown(draft.checkpoint)}, which no job "
        f"file may name: left out; --checkpoint PATH names it in full"
    )
    return replace(
        draft, checkpoint="", is_place_guessed=False, notes=(*draft.notes, note)
    )


def check_sharing(draft: Draft) -> None:
    """Refuse nodes whose processes could not share a step, or would all do the same.

    Raises:
        UsageError: They are such.
    """
    most = draft.least_and_most[1]
    if not draft.fitting_sizes:
        raise UsageError(
            f"a global batch of {draft.view.global_batch} in {draft.program} has no "
            f"equal shares for {draft.ranks_per_lease} processes on each of these "
            f"nodes. {_NOTHING} Ask for other numbers of them, or change it."
        )
    if most > 1 and draft.is_one_process:
        raise UsageError(
            f"nothing in {draft.program} shows that several processes share the "
            f"training: {most} of them would do the same work, and save over each "
            f"other. {_NOTHING} Start it by torchrun or mpirun if they do, or use "
            f"--nodes 1: it then moves from node to node."
        )


def _launcher_for(view: ScriptView, *, is_typed: bool) -> str:
    """Return the launcher of a command that names none.

    Elastic programs without PyTorch, and those of MPI's packages, find their peers by
    MPI alone. PyTorch's find them by variables that srun's have, too: a command that
    was typed stays one process in each lease. Loops of libraries take torchrun.
    """
    if view.is_integrated:
        return "torchrun"
    if view.is_elastic:
        return "srun" if view.uses("torch") else "mpirun"
    if view.uses("mpi4py") or view.uses("horovod"):
        return "mpirun"
    is_of_torch = view.shares_work and view.uses("torch")
    return "torchrun" if is_of_torch and not is_typed else "srun"


def _per_lease(launch: _Launch, wishes: Wishes) -> int | None:
    gpus, ranks = wishes.gpus_per_lease, launch.per_lease
    if ranks == _BY_GPUS:
        if gpus is None:
            raise UsageError(
                f"how many processes this command starts goes by what a node has, and "
                f"FreeTrain must know it. {_NOTHING} Write a number (torchrun "
                f"--nproc-per-node, accelerate launch --num_processes, mpirun "
                f"-npernode), or add --gpus-per-lease N."
            )
        return None  # the job file has one for each GPU without a word
    if gpus is not None and ranks is not None and ranks > gpus:
        raise UsageError(
            f"{ranks} processes in each lease and --gpus-per-lease {gpus} contradict "
            f"each other. {_NOTHING} Leave the launcher's number out, which gives each "
            f"GPU one process, or say --gpus-per-lease {ranks}."
        )
    return ranks


def _script_of(
    command: tuple[str, ...],
) -> tuple[str | None, str, tuple[str, ...]]:
    """Return the script of *command*, or None, what to call it, and its arguments.

    What Python runs by ``-m`` is called as the last word of the module.
    """
    rest = command
    if _PYTHON.fullmatch(Path(command[0]).name):
        rest = command[1:]
        while rest and rest[0].startswith("-"):
            if rest[0] == "-m" and len(rest) > 1:
                return None, rest[1].rpartition(".")[2], rest[2:]
            if rest[0] in {"-m", "-c"}:
                return None, command[0], rest[2:]
            rest = rest[2 if rest[0] in {"-W", "-X"} else 1 :]
        return (rest[0], rest[0], rest[1:]) if rest else (None, command[0], ())
    return (rest[0] if rest[0].endswith(".py") else None), rest[0], rest[1:]


def _unbuffered(command: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield the variable by which Python's output can be followed, if -u is missing."""
    if _PYTHON.fullmatch(Path(command[0]).name) and "-u" not in command[1:2]:
        yield "PYTHONUNBUFFERED", "1"


def _name_of(program: str) -> str:
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(program).stem).lstrip("._-")
    return name[:64] or "training"


def _cautions(draft: Draft, arguments: tuple[str, ...]) -> Iterator[str]:
    """Yield what of a program may go wrong, or is not seen."""
    view, several = draft.view, draft.least_and_most[1] > 1
    if view.is_integrated and several and view.global_batch is None:
        yield (
            f"the global batch of {draft.program} is not seen, and a world whose ranks "
            f"do not divide it fails: list the numbers of nodes that do as sizes in "
            f"[nodes]"
        )
    if draft.elastic:
        return
    if draft.view.problem:
        yield f"nothing of {draft.program} is seen: {draft.view.problem}"
    if draft.has_all_do_the_same:
        yield (
            f"nothing in {draft.program} shows that several processes share the "
            f"training: if so, all that {draft.launcher} starts do the same work, and "
            f"save over each other"
        )
    if draft.view.is_lightning and draft.view.logger is None:
        yield (
            f"where {draft.program} logs is not seen: with "
            f'logger=CSVLogger("logs") in its Trainer, or a table [progress], '
            f"FreeTrain shows how far it is, and learns its speeds"
        )
    is_seen = draft.view is not NOTHING_SEEN and not draft.view.problem
    option = draft.view.resume_option(arguments)
    if option:
        yield (
            f"{draft.program} has an option {option}, and the command does not give "
            f"it: it is started with these very words each time, and must go on from "
            f"its newest checkpoint by them"
        )
    elif is_seen and not draft.view.resumes:
        saves = "" if draft.checkpoint else "saves, or "
        yield (
            f"nothing in {draft.program} shows that it {saves}goes on from a "
            f"checkpoint: if so, each change of nodes begins it from the start"
        )
        if not draft.checkpoint:
            return  # where it saves is no question before it is known that it does
    if not draft.checkpoint:
        yield (
            f"where {draft.program} saves is not seen; --checkpoint PATH has FreeTrain "
            f"say what a change of nodes cost"
        )


# ----------------------------------------------------------------------
# Writing it

OWN_EVERY = "10min"
"""How often a program saves of which nobody says it: a guess that is marked as such."""

_Lines = list[tuple[str, object, str]]
"""Keys with their values and comments."""


def job_text(draft: Draft, *, origin: str) -> str:
    """Return the job file of *draft*; *origin* is the command that made it."""
    head = [
        schema_line(Described.JOB).rstrip("\n"),
        f"# Written by `{origin}`; docs/guide/job-file.md explains every key.",
    ]
    tables = {
        "nodes": _nodes(draft),
        "launch": _launch_lines(draft),
        "checkpoint": _checkpoint(draft),
        "stop": _stop(draft),
        "progress": _progress(draft),
    }
    blocks = ["\n".join(head), _block(_top(draft))]
    for name, lines in tables.items():
        if lines:
            blocks.append(f"[{name}]\n{_block(lines)}")
    return "\n\n".join(blocks) + "\n"


def _block(lines: _Lines) -> str:
    pairs = [(f"{key} = {toml_value(value)}", comment) for key, value, comment in lines]
    width = max((len(pair) for pair, comment in pairs if comment), default=0)
    return "\n".join(
        f"{pair:<{width}}  # {comment}" if comment else pair for pair, comment in pairs
    )


def _top(draft: Draft) -> _Lines:
    lines: _Lines = [
        ("name", draft.name, ""),
        ("command", list(draft.command), ""),
    ]
    if draft.environment:
        lines.append(("environment", dict(draft.environment), ""))
    if not draft.elastic:
        lines.append(("elastic", False, "it saves by itself, and goes on from there"))
    return lines


def _nodes(draft: Draft) -> _Lines:
    least, most = draft.least_and_most
    unit = "nodes" if draft.gpus_per_lease is None else "leases"
    unsaid = "" if draft.sizes else f"not said: how many {unit} at most"
    if draft.sizes is None and draft.is_one_process:
        unsaid = "one process: nothing shows that several share the work"
    lines: _Lines = [("min", least, ""), ("max", most, unsaid)]
    fitting = draft.fitting_sizes
    if len(fitting) < most - least + 1:
        why = f"their ranks divide the global batch, {draft.view.global_batch}"
        lines.append(("sizes", list(fitting), why))
    if draft.gpus_per_lease is not None:
        gpus = ("gpus_per_lease", draft.gpus_per_lease, "GPUs of a node, beside jobs")
        lines.insert(0, gpus)
    return lines


def _launch_lines(draft: Draft) -> _Lines:
    lines: _Lines = [("launcher", draft.launcher, "")]
    if draft.per_lease is not None:
        lines.append(("processes_per_node", draft.per_lease, "in each lease"))
    if draft.executable:
        lines.append(("executable", draft.executable, ""))
    if draft.options:
        lines.append(("options", list(draft.options), ""))
    return lines


def _checkpoint(draft: Draft) -> _Lines:
    if draft.elastic:
        return []
    unsaid = "" if draft.every else "not seen: how often it saves"
    lines: _Lines = [("every", draft.every or OWN_EVERY, unsaid)]
    if draft.checkpoint:
        lines.insert(0, ("path", draft.checkpoint, "its newest file: the last save"))
    return lines


def _stop(draft: Draft) -> _Lines:
    if draft.elastic:
        return []
    return [
        ("signal", "TERM", "ends it, unless it saves first and then ends"),
        ("kill_after", "30s", ""),
    ]


def _progress(draft: Draft) -> _Lines:
    """Return where it reports progress, if a library does it in a known place."""
    if draft.elastic:
        return []
    view, form, file = draft.view, "", ""
    if view.is_lightning and view.logger is not None:
        form, folder = view.logger
        file = folder if form == "lightning" else f"{folder}/version_*"
    elif view.uses("transformers") and draft.checkpoint:
        form, file = "huggingface", draft.checkpoint
    return [("format", form, ""), ("file", file, "")] if file else []
