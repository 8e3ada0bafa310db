"""MetaQ's text protocol: one line of words, for some commands followed by a body."""
