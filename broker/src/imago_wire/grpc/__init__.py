"""RocketMQ 5's gRPC protocol, sans-IO: HTTP/2 of a server, gRPC's framing, the messages."""
