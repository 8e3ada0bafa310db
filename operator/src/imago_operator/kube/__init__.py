"""The one door to Kubernetes' API server."""
