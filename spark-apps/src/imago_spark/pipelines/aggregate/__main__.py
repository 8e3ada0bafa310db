"""`python -m imago_spark.pipelines.aggregate`."""

import sys

from imago_spark.pipelines.aggregate.aggregating import main

if __name__ == "__main__":
    sys.exit(main())
