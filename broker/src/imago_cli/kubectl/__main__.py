"""`python -m imago_cli.kubectl`: the same as `kubectl-imago`."""

from imago_cli.kubectl.main import main

main()
