"""RocketMQ's 18 delay levels."""
