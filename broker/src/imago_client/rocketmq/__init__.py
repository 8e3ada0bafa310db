"""The asyncio client of the RocketMQ protocol."""
