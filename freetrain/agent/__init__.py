"""The program in every lease: it launches worlds, re-forms them, and cleans up.

Agents agree on everything through files, so the broker may be absent. ``agent`` is the
loop: *observe* (``observer`` reads ``board``, heartbeats and processes and makes an
``observation``), *decide* (``rules``, pure, returns actions), *act* (the executor of
``agent``, through ``board`` and ``environment``).
"""
