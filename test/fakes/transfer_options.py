"""Options of transfers between two ends on one node, with a real key."""

from __future__ import annotations

import os
from typing import Any

from ganeti.backend.backup import transfers
from ganeti.objects.transfer import ImportExportOptions
from ganeti.platform import paths
from ganeti.utils import fs


def keyed(**changes: Any) -> ImportExportOptions:
    """Both ends have the same key, which is made at the first call for a node."""
    directory = paths.current().crypto_keys_dir
    if os.path.isdir(directory) and (names := os.listdir(directory)):
        name, certificate = names[0], fs.read_file(f"{directory}/{names[0]}/cert")
    else:
        name, certificate = transfers.x509_cert_create(86400)
    return ImportExportOptions(
        **{
            "magic": "magic-word",
            "compress": "none",
            "key_name": name,
            "ca_pem": certificate,
            **changes,
        }
    )
