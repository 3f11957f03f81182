"""``python -m freetrain``: the same as the command ``freetrain``."""

import sys

from freetrain.cli.app import main

sys.exit(main())
