"""Requests of RocketMQ's tools: topics, groups, progress, settings, figures of a broker."""
