"""What cloud-init reads from the metadata daemon: its data source NoCloud, over HTTP.

The content is that of the seed disk which the OS definition ``image`` writes. It is made from the
parameters ``ssh_key`` and ``user_data`` of the OS.

Source: cloud-init's documentation of the data source NoCloud.
"""

from __future__ import annotations

from typing import Any

from ganeti.metad.guests import Guest
from ganeti.wire import json

KEYS, USER_DATA = "ssh_key", "user_data"


def _lines(guest: Guest, name: str) -> list[str]:
    value, _visibility = guest.parameters.get(name, ("", ""))
    return [line.strip() for line in value.splitlines() if line.strip()]


def meta_data(guest: Guest) -> str:
    """Return identity, host name and SSH keys of a guest; JSON, which is YAML, too."""
    found: dict[str, Any] = {
        "instance-id": str(guest.facts.get("uuid") or guest.name),
        "local-hostname": guest.name,
    }
    keys = _lines(guest, KEYS)
    if keys:
        found["public-keys"] = keys
    return json.dumps_pretty(found)


def user_data(guest: Guest) -> str | None:
    """Return the user data of a guest: its own, or its host name for cloud-init.

    :returns: None when the user data are a file on the node, which guests cannot read.
    """
    value, _visibility = guest.parameters.get(USER_DATA, ("", ""))
    if value.startswith("/"):
        return None
    if value:
        return value if value.endswith("\n") else f"{value}\n"
    config = {"hostname": guest.name.partition(".")[0], "fqdn": guest.name}
    return f"#cloud-config\n{json.dumps_pretty(config)}"
