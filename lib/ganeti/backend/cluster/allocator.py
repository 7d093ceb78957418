"""Instance allocators: programs which choose nodes.

An allocator is started with the name of a file that holds the request, and with options from the
parameters of the cluster. Its standard output is the answer, which the master checks (manual page
**ganeti-iallocator**). The file is removed before the call returns.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping
from typing import Any

from ganeti import errors
from ganeti.backend.registry import serves
from ganeti.platform import paths
from ganeti.utils import fs, process
from ganeti.wire import calls

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
# Shorter than the time limit of the call, so that the error names an allocator that hangs.
_TIMEOUT_S = 840.0


def allocator_argv(program: str, request_file: str, parameters: Mapping[str, Any]) -> list[str]:
    """Build the command line: program, request, each parameter as ``--key=value`` or ``--key``.

    A parameter that is None or True is an option without value; one that is False is left out.
    """
    options = []
    for key, value in parameters.items():
        if value is None or value is True:
            options.append(f"--{key}")
        elif value is not False:
            options.append(f"--{key}={value}")
    return [program, request_file, *options]


def find(name: str) -> str:
    """Find the program of an allocator.

    :raises ConfigurationError: this node has no such program, or the name is malformed.
    """
    if not _NAME.fullmatch(name):
        raise errors.ConfigurationError(f"{name!r:.80} is not a name of an instance allocator")
    searched = paths.current().iallocator_search_path
    for directory in searched:
        path = f"{directory}/{name}"
        if os.path.isfile(path):
            if not os.access(path, os.X_OK):
                raise errors.ConfigurationError(f"instance allocator {path} is not executable")
            return path
    raise errors.ConfigurationError(
        f"instance allocator {name} is in none of {', '.join(searched)}"
    )


@serves(calls.IALLOCATOR_RUNNER)
def run(name: str, request: str, parameters: dict[str, Any]) -> str:
    """Run an allocator.

    :returns: its standard output.
    :raises ConfigurationError: there is no such allocator on this node.
    :raises OpExecError: it failed or took too long; the text has its error output.
    """
    program = find(name)
    run_dir = paths.current().run_dir
    fs.make_dirs(run_dir, 0o755)
    with tempfile.NamedTemporaryFile(
        "w", prefix=f"ganeti-iallocator.{os.getpid()}.", dir=run_dir, encoding="utf-8"
    ) as stream:
        stream.write(request)
        stream.flush()
        try:
            done = process.run(
                allocator_argv(program, stream.name, parameters), timeout_s=_TIMEOUT_S, check=False
            )
        except errors.CommandError as err:
            raise errors.OpExecError(f"instance allocator {name} failed: {err}") from err
    if done.failed:
        raise errors.OpExecError(
            f"instance allocator {name} {done.fail_reason}:"
            f" {done.complaint or 'it printed nothing'}"
        )
    return done.stdout
