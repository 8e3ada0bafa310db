"""Check and dump of a stopped store; nothing is changed."""
