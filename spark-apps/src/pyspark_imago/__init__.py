"""PySpark finds the data source here."""
