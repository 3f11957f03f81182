"""Calling a user's program, once, and never for longer than its limit."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from freetrain.tick.outside import HookCall

_MOST_SAID = 200


def call_hook(call: HookCall) -> str:
    """Run *call* to its end; return what went wrong, empty for nothing.

    It is a session of its own, so that all that it started is killed with it. What
    it prints goes nowhere: ticks print one line.
    """
    try:
        hook = subprocess.Popen(  # noqa: S603 - what the user wrote, without a shell
            call.argv,
            cwd=call.folder,
            env=dict(call.environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        return f"the hook {call.argv[0]} could not be started: {error}"[:_MOST_SAID]
    try:
        status = hook.wait(call.limit_s)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(hook.pid, signal.SIGKILL)
        hook.wait()
        return f"the hook took longer than {call.limit_s:g} s and was killed"
    return f"the hook ended with exit code {status}" if status else ""
