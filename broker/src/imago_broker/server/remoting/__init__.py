"""Connections of RocketMQ's remoting protocol."""
