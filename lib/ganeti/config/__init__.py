"""The configuration of the cluster: what exists, and what was decided about it.

One process owns it, the master daemon; everybody else has copies. :mod:`.api` is what logical units
and daemons use. Below it: :mod:`.store` keeps the file and makes changes durable,
:mod:`.transaction` is the vocabulary of changes, :mod:`.view` answers questions about one state,
:mod:`.reservations` keep names and addresses for jobs that have not finished, :mod:`.verify` looks
for contradictions, :mod:`.upgrade` reads files of older versions, :mod:`.ssconf` extracts what
every node needs.

The room does not know how to reach other nodes: it is given a function which distributes.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ganeti.config.api import Config as Config
    from ganeti.config.store import Distribution as Distribution
    from ganeti.config.store import DistributionFailure as DistributionFailure
    from ganeti.config.transaction import Transaction as Transaction
    from ganeti.config.view import View as View

# Read when first used: commands want ganeti.config.ssconf without paying for the rest.
_HOME = {
    "Config": "api",
    "Distribution": "store",
    "DistributionFailure": "store",
    "Transaction": "transaction",
    "View": "view",
}


def __getattr__(name: str) -> object:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value
