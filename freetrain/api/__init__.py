"""What commands and Python programs have in common: logs, replays, the live cluster.

``freetrain.cli`` parses words, calls these modules and prints; ``import freetrain as
ft`` offers ``read_log``, ``replay``, ``holes``, ``status`` and ``submit`` of them.
"""
