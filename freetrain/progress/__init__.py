"""Progress of training programs, read from the files and output that they write.

``formats`` turns one line into a record: lines of ``freetrain.elastic``, and the JSON
lines, CSV tables and patterns of job.toml's ``[progress]`` for other programs.
``reader`` finds the files and reads on as they grow (``Reader``), or reads only their
ends (``latest_progress``).
"""
