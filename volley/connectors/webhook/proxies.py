"""Who sends a request that comes through proxies: the last address that no trusted proxy has."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from volley.checks import names
from volley.errors import ConfigError

__all__ = ["Proxies", "check_networks"]

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def check_networks(name: str, value: Any) -> tuple[str, ...]:
    """Return networks or addresses as texts."""
    listed = names(name, value)
    for network in listed:
        try:
            ipaddress.ip_network(network)
        except ValueError as error:
            raise ConfigError(f"{name} has {network!r}: {error}", hint='"10.0.0.0/8", or "127.0.0.1"') from error
    return listed


class Proxies:
    """Proxies that tell the truth about who has sent them a request.

    Args:
        networks: Their networks or addresses.

    Example:
        >>> proxies = Proxies(["10.0.0.0/8"])
        >>> proxies.client("10.0.0.1", "6.6.6.6, 203.0.113.7, 10.0.0.2")
        '203.0.113.7'
        >>> proxies.client("203.0.113.9", "6.6.6.6")
        '203.0.113.9'
    """

    def __init__(self, networks: Sequence[str]) -> None:
        self._networks: list[Network] = [ipaddress.ip_network(network) for network in networks]
        self._are_trusted = lru_cache(1024)(self._is_trusted)

    def client(self, peer: str, forwarded: str) -> str:
        """Return the address of the client.

        Args:
            peer: The address that is connected.
            forwarded: The header ``X-Forwarded-For``: to its end, each proxy adds the address that is connected to it.
        """
        client = peer
        for hop in reversed(forwarded.split(",")):
            if not self._are_trusted(client) or (address := _address(hop)) is None:
                break
            client = str(address)
        return client

    def _is_trusted(self, text: str) -> bool:
        address = _address(text)
        return address is not None and any(address in network for network in self._networks)


def _address(text: str) -> Address | None:
    """Return an address that may have a port; None if it is none."""
    text = text.strip()
    if match := re.fullmatch(r"\[(.*)\](:\d+)?|([\d.]+):\d+", text):
        text = match[1] or match[3] or ""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
