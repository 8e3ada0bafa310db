"""Access control in front of MetaQ's commands."""
