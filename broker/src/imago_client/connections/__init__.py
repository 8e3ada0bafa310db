"""Connections of the asyncio clients: opened when needed, closed once, and why there is none."""
