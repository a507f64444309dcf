"""Capabilities: flags by which a class says what it can do, so that nobody looks at its methods."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

from volley.errors import ConfigError

__all__ = ["check_capabilities"]


def check_capabilities(implementation: type, contract: type, methods: Mapping[str, str]) -> None:
    """Check that a class has the methods that its flags promise; a class of 0.2.0, without flags, gets them.

    Args:
        implementation: The class.
        contract: The class whose flags are False, and whose methods do nothing.
        methods: By flag, the method that it is about.

    Raises:
        ConfigError: If a flag is True, and the method is not there.
    """
    for flag, method in methods.items():
        has_method = getattr(implementation, method) is not getattr(contract, method)
        if getattr(implementation, flag) is True and not has_method:
            raise ConfigError(
                f"{implementation.__qualname__} says {flag} = True, and has no {method}",
                hint=f"write {method}, or leave {flag} out",
            )
        if has_method and getattr(implementation, flag) is getattr(contract, flag):
            text = f"{implementation.__qualname__} has {method}: say so by {flag} = True, as 0.4 will not look for it"
            warnings.warn(text, DeprecationWarning, stacklevel=4)
            setattr(implementation, flag, True)
