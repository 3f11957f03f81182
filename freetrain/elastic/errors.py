"""What can go wrong between a program and its run, by what to do next.

ElasticError
├── LaunchError            the launch is wrong: nothing was trained, launch anew
│   ├── WorldMismatchError     the world is not what the launcher announced
│   └── GenerationTakenError   another world runs, or has followed, this one
├── ProgramError           the program asks for what cannot be: correct it
│   ├── StateError             a value that a checkpoint cannot hold
│   └── ChangedTrainingError   seed, samples or batch differ from the checkpoint's
├── CheckpointError        this file cannot be used; an older one may be
└── NotCommittedError      training ended, its last steps could not be kept
"""


class ElasticError(Exception):
    """Something the person or program that launched the run can act on."""


class LaunchError(ElasticError):
    """The launch is wrong; nothing was trained."""


class WorldMismatchError(LaunchError):
    """The world is not the one that the launcher announced."""


class GenerationTakenError(LaunchError):
    """This generation was started before, or a later one exists."""


class ProgramError(ElasticError):
    """The training program asks for something that cannot be."""


class StateError(ProgramError):
    """A value in the state cannot be kept in a checkpoint."""


class ChangedTrainingError(ProgramError):
    """The program's seed, samples or global batch are not the checkpoint's."""


class CheckpointError(ElasticError):
    """A checkpoint file is torn, corrupt, or of an unknown version."""


class NotCommittedError(ElasticError):
    """The training is over, but its last steps could not be kept."""
