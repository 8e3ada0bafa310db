"""What the stories have in common: Kubernetes, a cluster under test, clients in pods."""
