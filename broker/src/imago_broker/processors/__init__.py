"""One package a protocol: commands in, calls to services, answers out."""
