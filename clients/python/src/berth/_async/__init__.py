"""The client for asyncio. The client without it is generated from this one: see `clients/python/generate_sync.py`."""
