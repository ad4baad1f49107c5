"""Asyncio clients: thin shells over `polymq.protocols`, for programs and for polymq's own tools and tests."""
