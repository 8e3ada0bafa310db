"""The ports of a broker, put together from its services and within its limits."""
