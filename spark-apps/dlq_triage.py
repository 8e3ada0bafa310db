"""The dlq_triage application as a file, which is how applications are named on submission."""

import sys

from imago_spark.pipelines.dlq_triage import main

if __name__ == "__main__":
    sys.exit(main())
