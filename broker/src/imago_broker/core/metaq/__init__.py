"""MetaQ's filters, copies and public tree, decided over values."""
