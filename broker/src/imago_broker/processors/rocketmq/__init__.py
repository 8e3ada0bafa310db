"""RocketMQ's remoting protocol: requests in, calls to services, answers out."""
