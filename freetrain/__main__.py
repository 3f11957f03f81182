"""``python -m freetrain``, and where the command ``freetrain`` begins."""

import sys


def run() -> int:
    """Run one command and return its exit code.

    Its modules are read here: where that takes seconds, as on a busy file system,
    Ctrl-C may come before there is anybody to take it.
    """
    try:
        from freetrain.cli.app import main  # noqa: PLC0415
    except KeyboardInterrupt:
        sys.stderr.write("error: interrupted before the end; no file written.\n")
        return 130
    return main()


if __name__ == "__main__":
    sys.exit(run())
