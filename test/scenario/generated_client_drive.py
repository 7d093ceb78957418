"""Asks a server for everything that can be read, by a client which was generated.

A program of its own: ``generated_client_drive.py DIRECTORY URL AUTHORIZATION NAME=VALUE...``. The
directory has the package ``made``, which openapi-python-client has generated. The names are those
of the paths, such as ``node_name=node1``. It prints a line of JSON for each operation: its name and
the status. It ends with an error when the client cannot read an answer, or does not expect its
status.
"""

from __future__ import annotations

import enum
import importlib
import inspect
import json
import ssl
import sys
import typing
from pathlib import Path
from typing import Any

# One has no end, one is the form of a request with a body, which takes ten seconds.
_LEFT_OUT = ("watch_events", "wait_for_job")


def main(directory: str, url: str, authorization: str, *words: str) -> None:
    """Ask for everything that can be read."""
    sys.path.insert(0, directory)
    values = dict(word.split("=", 1) for word in words)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    client = importlib.import_module("made.client").Client(
        base_url=url,
        headers={"Authorization": authorization},
        verify_ssl=context,
        raise_on_unexpected_status=True,
    )
    for path in sorted(Path(directory, "made", "api").rglob("*.py")):
        if path.stem in _LEFT_OUT or path.stem == "__init__":
            continue
        name = ".".join(path.relative_to(directory).with_suffix("").parts)
        module: Any = importlib.import_module(name)
        kinds = typing.get_type_hints(module._get_kwargs)
        wanted = inspect.signature(module._get_kwargs).parameters.values()
        given = {
            one.name: _value(kinds[one.name], values.get(one.name, "x"))
            for one in wanted
            if one.default is inspect.Parameter.empty
        }
        if "body" in given or module._get_kwargs(**given)["method"] != "get":
            continue
        found = module.sync_detailed(client=client, **given)
        print(json.dumps([path.stem, found.status_code]), flush=True)


def _value(kind: Any, text: str) -> Any:
    """Return an argument of a type."""
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return next(iter(kind))
    return [text] if typing.get_origin(kind) is list else text


if __name__ == "__main__":
    main(*sys.argv[1:])
