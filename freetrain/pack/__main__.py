"""The command: ``python -m freetrain.pack pack.toml``."""

import sys

from freetrain.own_packages import prefer_own_packages

if __name__ == "__main__":
    prefer_own_packages()
    from freetrain.pack.run import main

    sys.exit(main(sys.argv[1:]))
