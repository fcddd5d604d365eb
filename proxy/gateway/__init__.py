"""The use cases: listing, calling, activating, announcing."""
