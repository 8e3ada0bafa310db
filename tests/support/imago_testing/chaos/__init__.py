"""Kill brokers under load, and check that no promise was broken."""
