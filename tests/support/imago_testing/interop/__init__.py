"""Original clients as Python objects, and the targets that they are run against."""
