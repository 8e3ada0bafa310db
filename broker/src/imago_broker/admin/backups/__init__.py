"""Backups of the whole cluster: who does which part, how far it is, which there are."""
