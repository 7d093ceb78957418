"""The witness as this node reaches it: each candidate must, before it is needed."""

from __future__ import annotations

import os

from ganeti import errors
from ganeti.backend.registry import serves
from ganeti.platform import paths
from ganeti.wire import calls


@serves(calls.WITNESS_READ)
def read_witness(url: str) -> str:
    """Return the text of the document.

    :raises DocumentError: the server does not answer this node, or refuses its credentials.
    :raises ConfigurationError: there is no document.
    """
    from ganeti.http.document import Access, WebDocument  # with libcurl, 5 MiB; calls are rare

    here = paths.current()
    ca_file, auth_file = here.witness_ca_file, here.witness_auth_file
    access = Access(
        ca_file if os.path.exists(ca_file) else "",
        auth_file if os.path.exists(auth_file) else "",
    )
    text = WebDocument(url, access).read().text
    if text is None:
        raise errors.ConfigurationError(f"{url}: the document is missing")
    return text
