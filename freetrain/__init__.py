"""FreeTrain: trains neural networks on the nodes that Slurm leaves idle.

What each package does; its own docstring says more.

=====================  ============================================================
users' commands        ``cli``: the command line; ``client``: what its verbs do;
                       ``doctor``, ``demo``, ``cron``; ``config``: TOML files;
                       ``api``: what commands and Python programs have in common
a tick, on a login     ``tick``: all its input and output; ``broker``: its decisions,
node                   pure; ``state``: database and files
in a lease             ``agent``; ``launch``: starts worlds; ``pack``: several
                       trainers on a node; ``progress``: reads what programs print
in a training program  ``elastic``
priorities, forecasts  ``priority``; ``losscurve``; ``lookahead``: how long nodes stay
planning               ``planning``: policies, for ticks and replays alike
replay                 ``replay``: engine and policies; ``report``: its pages
=====================  ============================================================

Beside the packages: module scaling learns speeds, errors has the exit codes, launchers
is the registry of launchers, processes reads /proc, own_packages lets our programs find
our logs, milp and slurm.
"""
