"""Settings that are not in the configuration alone: kept in the log or the data folder."""
