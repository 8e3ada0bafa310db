"""What clients decide, without I/O: operations that yield requests and are sent the answers."""
