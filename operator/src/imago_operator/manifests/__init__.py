"""Kubernetes objects of a cluster, as they are to be."""
