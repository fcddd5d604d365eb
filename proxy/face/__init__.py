"""Towards clients: transports, identity, notices."""
