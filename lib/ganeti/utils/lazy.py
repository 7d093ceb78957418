"""Names of a package whose modules are imported when a name is first used."""

from __future__ import annotations

import sys
from importlib import import_module

from ganeti import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def names(package: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """Return the function ``__getattr__`` of a package.

    :param homes: from each name to the module of the package which defines it.
    """

    def find(name: str) -> object:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(import_module(f"{package}.{home}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return find
