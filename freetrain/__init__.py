"""FreeTrain: trains neural networks on the nodes that Slurm leaves idle.

Which package does what; each says more itself.

=====================  ============================================================
command line           ``cli``: a file a verb; ``desk``: what users ask for;
                       ``doctor``, ``cron``, ``demo``
what people write      ``jobfile``, ``site``, ``trainers`` (of replays), ``toml``
a tick, on a login     ``tick``: its edge; ``broker``: its decisions, pure; ``store``:
node                   what it remembers
in a lease             ``agent``; ``launch``: worlds; ``pack``: several trainers on a
                       node; ``exchange``: files between broker and agents
in a training program  ``elastic``; ``progress`` reads what programs tell
who deserves what      ``priority``; ``quality``: loss curves; ``scaling``: speeds;
                       ``forecast``: how long nodes stay
replay                 ``replay``: engine and policies; ``report``: what comes of it;
                       ``recorded``: curves that ship
in place of Slurm      ``standin``: for the live demo and tests
=====================  ============================================================
"""
