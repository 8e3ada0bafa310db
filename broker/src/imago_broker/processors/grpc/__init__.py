"""RocketMQ 5's calls over gRPC, each asked of what serves the remoting protocol."""
