"""The program that tests of spares run: it prints its own state, then obeys TEST_DOES.

Run as ``python -m tests.elastic.spare_program``.
"""

import json
import os
import resource
import signal
import sys
import tempfile
import threading
import time
from importlib import import_module
from pathlib import Path

from freetrain import elastic

STARTED_AS = os.getpid()


def before_join() -> object:
    """Do what survives no fork, where the test wants it."""
    sys.stdout.write("before join\n")
    match os.environ.get("TEST_BEFORE"):
        case "file":
            return tempfile.TemporaryFile()
        case "thread":
            thread = threading.Thread(target=time.sleep, args=(60,), daemon=True)
            thread.start()
            return thread
        case "mpi":
            return import_module("mpi4py.MPI")
        case "rank":
            return os.environ.get("LOCAL_RANK", "0")
        case _:
            return None


def state() -> dict[str, object]:
    umask = os.umask(0)
    os.umask(umask)
    environ = Path("/proc/self/environ").read_bytes().split(b"\0")
    return {
        "started_as": STARTED_AS,
        "pid": os.getpid(),
        "folder": str(Path.cwd()),
        "umask": umask,
        "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        "says": os.environ.get("TEST_SAYS"),
        "spare": os.environ.get("FREETRAIN_SPARE"),
        "mark": next(x for x in environ if x.startswith(b"FREETRAIN_WORLD")).decode(),
        "processors": len(os.sched_getaffinity(0)),
    }


if __name__ == "__main__":
    kept = before_join()
    with elastic.join():
        del kept
        print(json.dumps(state()), flush=True)  # noqa: T201
        match os.environ.get("TEST_DOES", ""):
            case "read":
                sys.stdout.write(f"read {sys.stdin.readline()}")
            case "exit":
                sys.exit(3)
            case "abort":
                resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
                os.abort()
            case "wait":
                signal.signal(signal.SIGUSR2, lambda *_: sys.exit(5))
                print("waits", flush=True)  # noqa: T201
                while True:
                    time.sleep(60)
            case _:
                pass
