"""Spark applications, one a module: `build` makes the DataFrame, `main` runs it."""
