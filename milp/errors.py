"""What can go wrong in the planner, by what the caller should do next.

MilpError
├── MalformedProblemError   tell the user: a curve or problem makes no sense
├── SolverUnavailableError  tell the user: install the solver or choose another
└── SolverFailedError       keep the current plan; the next call may go better
"""


class MilpError(Exception):
    """The planner could not do what was asked of it."""


class MalformedProblemError(MilpError):
    """A curve or a problem breaks its own definition; nothing was planned."""


class SolverUnavailableError(MilpError):
    """The solver asked for is not installed; nothing was planned."""


class SolverFailedError(MilpError):
    """A solver crashed or answered with something that is not a solution."""
