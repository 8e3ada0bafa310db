"""MetaQ's `server.ini`: read, translated, and written again."""
