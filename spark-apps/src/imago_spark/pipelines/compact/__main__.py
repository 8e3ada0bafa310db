"""`python -m imago_spark.pipelines.compact`."""

import sys

from imago_spark.pipelines.compact.compacting import main

if __name__ == "__main__":
    sys.exit(main())
