"""Clients of both protocols: asyncio, with a blocking face."""
