"""The RocketMQ remoting protocol, both directions, as a sans-IO codec."""
