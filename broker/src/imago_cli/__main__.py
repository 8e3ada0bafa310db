"""`python -m imago_cli` is the `imago` command."""

from imago_cli.main import main

main()
