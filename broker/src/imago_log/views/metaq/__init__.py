"""MetaQ's own files of materialised topics."""
