"""Keeps a stand-in with one job for ever: to be killed."""

import os
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, os.getcwd())  # noqa: PTH109 - the tree under test

from freetrain.demo.fake_slurm.processes import at_work, install

# A shell's background job, such as a whole run of the tests may be, ignores it.
signal.signal(signal.SIGINT, signal.default_int_handler)
home = Path(sys.argv[1])
folder = home / "stand-in"
folder.mkdir()
script = home / "script"
step = f"echo $$ >> {home}/pids; sleep 600"
script.write_text(
    f"#!/bin/sh\necho $$ >> {home}/pids\n{folder}/bin/srun -N1 -n1 sh -c '{step}'\n"
)
script.chmod(0o700)
with at_work(install(folder, now_s=time.time())):  # noqa: TID251 - the real one
    os.system(f"{folder}/bin/sbatch -p freetrain -o /dev/null {script} >/dev/null")  # noqa: S605
    time.sleep(600)
