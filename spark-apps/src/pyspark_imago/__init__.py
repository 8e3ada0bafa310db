"""PySpark looks for data sources in top-level modules named `pyspark_…`: this one is found so."""

from imago_spark.source import ImagoDataSource as DefaultSource

__all__ = ["DefaultSource"]
