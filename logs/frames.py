"""Logs as pandas frames and as Parquet files, both with the columns of our CSV.

Header comments of CSV, which may say how large the machine is and when its log begins,
are ``attrs["comments"]`` of a frame; pandas keeps them in Parquet files.
"""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from logs.csv_tables import IDLE_COLUMNS, Fragments, JobsCsv, quote_field
from logs.format import MAX_BYTES, Content
from logs.gpu_csv import GpuCsv
from logs.trace import IdleTrace, UnreadableLogError, UnusableLogError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd
    import pyarrow as pa
    from numpy.typing import NDArray

    from logs.trace import JobTrace


def jobs_frame(trace: JobTrace) -> pd.DataFrame:
    """Return a row for each job of *trace*, by submission.

    The columns are ``job``, ``user``, ``partition``, ``state`` (text, empty where the
    log does not say), ``submit_s``, ``start_s``, ``run_s``, ``req_s`` (float64, nan
    where not known) and ``nodes`` (int64, parts of nodes count as whole ones). Of a log
    that counts GPUs they are ``gpus`` and ``node_count`` instead, and ``node_list``
    where it names nodes.
    """
    import pandas as pd  # noqa: PLC0415 - commands do without

    jobs, per_node = trace.jobs, trace.units_per_node
    nodes = [job.node_count or -(-job.units // per_node) for job in jobs]
    columns: dict[str, object] = {
        "job": [job.job_id for job in jobs],
        "user": [job.user for job in jobs],
        "partition": [job.partition for job in jobs],
        "state": [job.state for job in jobs],
        "submit_s": _seconds(job.submit_s for job in jobs),
        "start_s": _seconds(job.start_s for job in jobs),
        "run_s": _seconds(job.run_s for job in jobs),
        "req_s": _seconds(job.requested_s for job in jobs),
    }
    if trace.counts_gpus:
        columns |= {"gpus": [job.units for job in jobs], "node_count": nodes}
        if trace.names_nodes:
            columns["node_list"] = [",".join(job.nodes) for job in jobs]
    else:
        columns["nodes"] = nodes
    frame = pd.DataFrame(columns)
    frame.attrs["comments"] = _comments(trace)
    return frame


def _seconds(values: Iterator[float | None]) -> NDArray[np.float64]:
    return np.array(list(values), np.float64)


def idle_frame(trace: IdleTrace) -> pd.DataFrame:
    """Return a row for each hole of each node of *trace*, by start, then node.

    The columns are ``node`` (category), ``idle_start_s`` and ``idle_end_s`` (float64).
    """
    import pandas as pd  # noqa: PLC0415 - commands do without

    widths = trace.widths
    columns = (
        pd.Categorical.from_codes(single_nodes(trace), list(trace.node_names)),
        np.repeat(trace.start_s, widths),
        np.repeat(trace.end_s, widths),
    )
    frame = pd.DataFrame(dict(zip(IDLE_COLUMNS, columns, strict=True)))
    frame.attrs["comments"] = _comments(trace)
    return frame


def single_nodes(trace: IdleTrace) -> NDArray[np.int64]:
    """Return the node of each hole, as index; nodes idle together one by one."""
    widths = trace.widths.astype(np.int64)
    within = np.arange(widths.sum()) - np.repeat(np.cumsum(widths) - widths, widths)
    return np.asarray(np.repeat(trace.node, widths) + within)


def _comments(trace: JobTrace | IdleTrace) -> list[str]:
    """Return the header comments that *trace* has as CSV."""
    text = io.StringIO()
    if isinstance(trace, IdleTrace):
        none = trace.node[:0]
        times_s = trace.start_s[:0]
        Fragments().write(
            replace(trace, node=none, start_s=times_s, end_s=times_s, nodes=None), text
        )
    else:
        csv = GpuCsv() if trace.counts_gpus else JobsCsv()
        csv.write(replace(trace, jobs=()), text)
    lines = text.getvalue().splitlines()
    return [line[1:].removeprefix(" ") for line in lines if line.startswith("#")]


def parquet_as_csv(content: Content, *, most_bytes: int = MAX_BYTES) -> Content:
    """Return the table of a Parquet file as CSV, a line a row.

    Raises:
        UnusableLogError: There is no pyarrow, which reads such files.
        UnreadableLogError: It is damaged, or larger than *most_bytes* as CSV.
    """
    try:
        import pandas as pd  # noqa: PLC0415 - few logs need it
        import pyarrow as pa  # noqa: PLC0415 - an extra
        from pyarrow import parquet  # noqa: PLC0415
    except ImportError as error:
        raise UnusableLogError(
            f"{content.source} is a Parquet file, and pyarrow, which reads those, is "
            f"not installed; nothing was done. pip install 'freetrain[data]'."
        ) from error
    text = io.BytesIO()
    try:
        table = parquet.ParquetFile(io.BytesIO(content.raw))
        schema = table.schema_arrow
        text.writelines(
            f"# {comment}\n".encode() for comment in _attrs_comments(schema)
        )
        # pandas writes the index of a part of a frame, too.
        columns = [name for name in schema.names if not name.startswith(_INDEX)]
        text.write((",".join(map(quote_field, columns)) + "\n").encode())
        for batch in table.iter_batches(columns=columns):
            # As pandas' own, numbers beside missing values would become floats.
            frame = batch.to_pandas(ignore_metadata=True, types_mapper=pd.ArrowDtype)
            # Quoted, a name that begins with # is no comment.
            rows = frame.to_csv(index=False, header=False, quoting=_QUOTED)
            text.write(rows.encode("utf-8", "surrogateescape"))
            if text.tell() > most_bytes:
                why = f"there are more than {most_bytes:,} bytes in it; split it first"
                raise UnreadableLogError(content.source, None, None, why)
    except (pa.ArrowException, OSError, ValueError, TypeError) as error:
        why = f"the Parquet file is damaged ({error}); copy it again"
        raise UnreadableLogError(content.source, None, None, why) from None
    return Content(content.source, text.getvalue())


_INDEX = "__index_level_"
_QUOTED = csv.QUOTE_NONNUMERIC


def _attrs_comments(schema: pa.Schema) -> list[str]:
    """Return ``attrs["comments"]`` of the frame that was written, if it was one."""
    attrs = json.loads((schema.metadata or {}).get(b"PANDAS_ATTRS", b"{}"))
    comments = attrs.get("comments", ()) if isinstance(attrs, dict) else ()
    return [" ".join(str(comment).splitlines()) for comment in comments]
