"""Towards servers: connections and what they offer."""
