"""`python -m imago_spark.pipelines.replay`."""

import sys

from imago_spark.pipelines.replay.replaying import main

if __name__ == "__main__":
    sys.exit(main())
