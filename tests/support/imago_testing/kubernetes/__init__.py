"""Kubernetes for tests: a real API server; fakes of it, of the operator's port and of kubectl."""
