"""The Kubernetes operator: observe, plan with a pure function, apply, report."""
