"""The original Java clients and brokers: fetched by Maven, compiled, run as processes."""
