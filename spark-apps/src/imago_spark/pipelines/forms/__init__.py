"""Bodies that are no JSON: how they become it, so that they are parsed as it."""
