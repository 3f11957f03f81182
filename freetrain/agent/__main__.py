"""The command: ``python -m freetrain.agent``, as leases call it."""

import sys

from freetrain.own_packages import prefer_own_packages

if __name__ == "__main__":
    prefer_own_packages()
    from freetrain.agent.agent import main

    sys.exit(main(sys.argv[1:]))
