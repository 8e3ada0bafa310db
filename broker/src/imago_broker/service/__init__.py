"""What the broker does, whatever the protocol."""
