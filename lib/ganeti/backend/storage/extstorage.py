"""Handler of the list of providers of external storage."""

from __future__ import annotations

from typing import Any

from ganeti.backend.registry import serves
from ganeti.storage.ext import provider
from ganeti.wire import calls


@serves(calls.EXTSTORAGE_DIAGNOSE)
def extstorage_diagnose() -> list[list[Any]]:
    """List the providers of this node, in the order of the search path; the first name counts."""
    return [
        [
            found.name,
            found.path,
            found.usable,
            found.problem,
            [list(pair) for pair in (found.provider.supported_parameters or ())]
            if found.provider is not None
            else [],
        ]
        for found in provider.all_providers()
    ]
