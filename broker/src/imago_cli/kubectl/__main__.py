"""Where `kubectl-imago` begins: Ctrl-C ends it without a trace, also while it still loads."""

import sys

_INTERRUPTED = 130


def main() -> None:
    """Run the command of this process's arguments and exit with its code."""
    try:
        from imago_cli.kubectl.main import main as plugin
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
    plugin()


if __name__ == "__main__":
    main()
