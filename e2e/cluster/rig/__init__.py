"""A whole Kubernetes on this machine, for the end-to-end suite: three nodes, nothing outside."""
