"""The client without asyncio. All but `transport` is generated from `berth._async` by `clients/python/generate_sync.py`."""
