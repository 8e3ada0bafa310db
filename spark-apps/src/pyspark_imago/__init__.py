"""PySpark finds data sources in top-level modules named `pyspark_…`, such as this one."""

from imago_spark.source import ImagoDataSource as DefaultSource

__all__ = ["DefaultSource"]
