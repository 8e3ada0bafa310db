"""RocketMQ's name service, answered from the cluster registry: it holds no state of its own."""
