"""The topic_stats application as a file, which is how applications are named on submission."""

import sys

from imago_spark.pipelines.topic_stats import main

if __name__ == "__main__":
    sys.exit(main())
