"""The text protocol of MetaQ 1.4: what each command does and answers."""
