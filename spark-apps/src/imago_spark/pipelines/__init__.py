"""Spark applications, one a module: `build` makes the DataFrame, `main` runs it."""

import importlib.util
import sys

if sys.argv[:1] == ["-m"] and importlib.util.find_spec("pyspark") is None:
    # `python -m` imports this package first: its user gets a sentence and not a trace.
    sys.exit("error: PySpark is not installed\n  cure: pip install 'imago-mq[spark]'")
