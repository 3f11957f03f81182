"""``python -m freetrain``, and where the command ``freetrain`` begins."""

import sys

from freetrain.own_packages import prefer_own_packages

# Here and not in run(): processes that a command starts import this module alone.
prefer_own_packages()


def run() -> int:
    """Run one command and return its exit code.

    Its modules are read here: where that takes seconds, as on a busy file system,
    Ctrl-C may come before the command handles it.
    """
    try:
        from freetrain.cli.app import main  # noqa: PLC0415
    except KeyboardInterrupt:
        sys.stderr.write("error: interrupted before the end; no file written.\n")
        return 130
    return main()


if __name__ == "__main__":
    sys.exit(run())
