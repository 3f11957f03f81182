"""What can go wrong in a replay besides its input."""

from freetrain.errors import FreeTrainError


class BrokenPolicyError(FreeTrainError):
    """A policy asked for a change that cannot be; the policy has a defect."""

    def __init__(self, policy: str, now_s: float, why: str) -> None:
        super().__init__(
            f"the policy {policy!r} broke a rule of the replay at {now_s:g} s: {why}. "
            f"The replay was stopped and reports nothing. This is a defect in the "
            f"policy; please report it with the command that you ran."
        )
