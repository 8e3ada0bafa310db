"""Connections of the gRPC port."""
