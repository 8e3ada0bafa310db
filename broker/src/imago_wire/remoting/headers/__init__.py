"""Header classes, one module for each group of request codes; `table` lists them by code."""
