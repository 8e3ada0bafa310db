"""TLS of a listening port: certificates and their rotation, handshakes in turn."""
