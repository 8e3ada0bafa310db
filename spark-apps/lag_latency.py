"""The lag_latency application as a file, which is how applications are named on submission."""

import sys

from imago_spark.pipelines.lag_latency import main

if __name__ == "__main__":
    sys.exit(main())
