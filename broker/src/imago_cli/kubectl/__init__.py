"""`kubectl imago`: clusters on Kubernetes, for the people who operate them.

Everything goes through the `kubectl` that calls it: its contexts, its credentials, its rights.
Brokers are asked from inside of their own pods, where no token is needed.
"""
