"""Addresses of clients, as they are counted."""

import ipaddress


def network_of(address: str) -> str:
    """What stands for all addresses that one client can have: an IPv4 address, and of an IPv6 address its /64."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:  # a socket without addresses
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(parsed), 64), strict=False))
