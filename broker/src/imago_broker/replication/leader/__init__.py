"""The side that leads: what followers are sent of the log, and lent of it."""
