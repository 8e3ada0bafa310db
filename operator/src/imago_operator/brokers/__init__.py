"""The brokers of clusters, over their admin HTTP."""
