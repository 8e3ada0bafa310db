"""The `imago` command."""
