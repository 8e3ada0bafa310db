"""The replay application as a file, which is how applications are named when they are submitted."""

import sys

from imago_spark.pipelines.replay.replaying import main

if __name__ == "__main__":
    sys.exit(main())
