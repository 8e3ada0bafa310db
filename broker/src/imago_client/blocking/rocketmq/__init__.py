"""The RocketMQ protocol on plain blocking sockets."""
