"""Reading what training programs tell of their progress.

``reader.Reader`` follows a program as it runs; ``tail.latest_progress`` looks once,
at the end of what it wrote. Both read ``progress.jsonl`` of programs that use
``freetrain.elastic``, and what job.toml's ``[progress]`` names for others.
"""
