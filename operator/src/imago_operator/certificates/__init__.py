"""Certificates of a cluster's members, and the authority that signs them."""
