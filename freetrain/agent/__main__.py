"""The command: ``python -m freetrain.agent``, as leases call it."""

import sys

from freetrain.agent.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
