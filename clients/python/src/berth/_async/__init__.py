"""The client for asyncio, and what the one without is generated from: see `clients/python/generate_sync.py`."""
