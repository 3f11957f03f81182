"""The program in every lease: it launches worlds, re-forms them, and cleans up.

Agents agree on everything through files, so the broker may be absent. ``agent`` is the
loop: *observe* (``board``, ``node`` and heartbeats make an ``observation``), *decide*
(``rules``, pure, return ``actions``), *act* (``executor``, through ``board`` and
``environment``).
"""
