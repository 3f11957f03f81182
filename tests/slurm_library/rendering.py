"""Slurm's text answers made from plain values, byte for byte as Slurm pads them."""

from collections.abc import Iterable, Mapping

from slurm.text import FREE_WIDTH_COLUMNS, TYPED_WIDTHS

DEFAULTS = {
    "ArrayTaskID": "N/A",
    "UserID": "1001",
    "UserName": "alice",
    "Partition": "main",
    "State": "PENDING",
    "Reason": "Priority",
    "PriorityLong": "1000",
    "Nice": "0",
    "SubmitTime": "2026-11-21T08:00:00",
    "EligibleTime": "2026-11-21T08:00:00",
    "StartTime": "N/A",
    "EndTime": "N/A",
    "TimeLimit": "1:00:00",
    "NumNodes": "1",
    "NumCPUs": "1",
    "ReqNodes": "",
    "SchedNodes": "(null)",
    "NodeList": "",
}


def squeue_text(jobs: Iterable[Mapping[str, str]]) -> str:
    """What squeue prints for *jobs*, each a mapping from column to value."""
    header = {name: name.upper() for name in (*TYPED_WIDTHS, *FREE_WIDTH_COLUMNS)}
    rows = [header, *(_with_defaults(job) for job in jobs)]
    output = b"".join(map(_row, rows))
    return output.decode("utf-8", "surrogateescape")


def scontrol_text(records: Iterable[Mapping[str, str]]) -> str:
    """What ``scontrol --oneliner show`` prints for *records*."""
    lines = (" ".join(f"{k}={v}" for k, v in record.items()) for record in records)
    return "".join(f"{line}\n" for line in lines)


def _with_defaults(job: Mapping[str, str]) -> dict[str, str]:
    job_id = job["JobID"]
    ids = {"JobArrayID": job_id, "ArrayJobID": job_id}
    return DEFAULTS | ids | dict(job)


def _row(values: Mapping[str, str]) -> bytes:
    fixed = (
        _cell(values.get(name, "(null)"), TYPED_WIDTHS[name]) for name in TYPED_WIDTHS
    )
    told = (values.get(name, "(null)").encode() for name in FREE_WIDTH_COLUMNS)
    return b"".join(cell + b"|" for cell in (*fixed, *told)) + b"\n"


def _cell(text: str, width: int) -> bytes:
    """Cut and pad in bytes, as printf does in the C locale."""
    return text.encode("utf-8", "surrogateescape")[:width].ljust(width)
