"""A Spark query that copies a topic while its driver, workers and master are killed."""
