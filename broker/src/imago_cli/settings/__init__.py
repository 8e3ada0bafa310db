"""Settings of brokers: in files, and of those that run."""
