"""Our own account, as Slurm knows it."""

import os
import pwd


def user_name() -> str:
    """Return our user name; our number where this host knows no name for it."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
