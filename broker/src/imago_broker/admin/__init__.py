"""Health, metrics, administration and the dashboard over HTTP: aiohttp's one door."""
