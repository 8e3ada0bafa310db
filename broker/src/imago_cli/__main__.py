"""Where the `imago` command begins: Ctrl-C ends it without a trace, also while it still loads."""

import sys

_INTERRUPTED = 130
"""`imago_cli.exits` says what it means; loading that is what may be interrupted here."""


def main() -> None:
    """Run the command of this process's arguments and exit with its code."""
    try:
        from imago_cli.main import main as command
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
    command()


if __name__ == "__main__":
    main()
