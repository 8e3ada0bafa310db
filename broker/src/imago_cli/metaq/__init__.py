"""`imago metaq`: MetaQ's own tools, for brokers of ours."""
