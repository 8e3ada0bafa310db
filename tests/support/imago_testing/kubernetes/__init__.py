"""Kubernetes for tests: a real API server, and three fakes (an API server, the port of the operator, kubectl)."""
