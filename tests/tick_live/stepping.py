"""A trainer whose program is a script that prints its steps, by no MPI."""

from pathlib import Path

from freetrain.config.document import BaseFolders
from freetrain.config.job import TrainerJob, parse_job

_JOB = """\
name = "a"
command = "{program}"
elastic = false
[launch]
launcher = "custom"
command = ["env", "NODES={{nodes}}"]
{tables}
[progress]
format = "pattern"
pattern = '^step (?P<step>\\d+)$'
"""


def stepping_job(program: Path, script: str, tables: str) -> TrainerJob:
    """Write *script* to *program*, and return a trainer that runs it.

    The script finds the number of nodes in NODES; *tables* are more of the job file.
    """
    program.write_text(script)
    program.chmod(0o755)
    text = _JOB.format(program=program, tables=tables)
    return parse_job(text.encode(), path="job.toml", places=BaseFolders(Path("/")))
