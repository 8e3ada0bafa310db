"""Access control in front of RocketMQ's requests: rights of each code, refusals."""
