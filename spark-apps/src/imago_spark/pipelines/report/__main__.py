"""`python -m imago_spark.pipelines.report`."""

import sys

from imago_spark.pipelines.report.reporting import main

if __name__ == "__main__":
    sys.exit(main())
