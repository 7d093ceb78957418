"""Scripts of the administrator around operations.

The directory ``CONF_DIR/hooks/<hpath>-<phase>.d`` holds them. Every executable file whose name has
letters, digits, ``_`` and ``-`` only is run, in the order of names, with the environment which the
master built and nothing else (Ganeti design 2.0, *Hooks*). The answer has a row for each entry of
the directory: skipped, failed or succeeded, and the output of the script.
"""

from __future__ import annotations

import os
import re
import time
from typing import Any

from ganeti import errors
from ganeti.backend.registry import serves
from ganeti.constants import hooks
from ganeti.platform import paths
from ganeti.utils import fs, process
from ganeti.wire import calls

_SCRIPT_NAME = re.compile(r"[a-zA-Z0-9_-]+")
_HPATH = re.compile(r"[a-z0-9][a-z0-9-]*")
# For all scripts together; shorter than the time limit of the call, so that the error names a
# script that hangs.
_TIMEOUT_S = 840.0
_UMASK = 0o077


@serves(calls.HOOKS_RUNNER)
def run(hpath: str, phase: str, env: dict[str, str]) -> list[list[Any]]:
    """Run the scripts of one directory.

    :returns: rows of relative name, status (``constants.hooks.RESULT_*``), output.
    :raises HooksFailure: the directory cannot be read, or its name is malformed.
    """
    return run_scripts(*_directory(hpath, phase), env)


def run_scripts(subdir: str, directory: str, env: dict[str, str] | None) -> list[list[Any]]:
    """Run the scripts of a directory in the order of their names.

    :param subdir: name of the directory in the result.
    :param env: the whole environment of the scripts; None for that of this process.
    :returns: rows as those of :func:`run`.
    :raises HooksFailure: the directory cannot be read.
    """
    names = _names(directory)
    deadline = time.monotonic() + _TIMEOUT_S
    rows: list[list[Any]] = []
    for name in names:
        path = f"{directory}/{name}"
        if not (_SCRIPT_NAME.fullmatch(name) and os.path.isfile(path) and os.access(path, os.X_OK)):
            rows.append([f"{subdir}/{name}", hooks.RESULT_SKIP, ""])
            continue
        status, output = _run_script(path, env, deadline - time.monotonic())
        rows.append([f"{subdir}/{name}", status, output])
    return rows


@serves(calls.HOOKS_PRESENT)
def present(wanted: list[list[str]]) -> list[bool]:
    """Return whether a directory has a script to run, or an entry to report as skipped.

    :param wanted: pairs of directory and phase.
    :raises HooksFailure: a directory cannot be read, or its name is malformed.
    """
    return [bool(_names(_directory(hpath, phase)[1])) for hpath, phase in wanted]


def _directory(hpath: str, phase: str) -> tuple[str, str]:
    if not _HPATH.fullmatch(hpath):
        raise errors.HooksFailure(f"not a name of hooks: {hpath!r:.80}")
    subdir = f"{hpath}-{phase}.d"
    return subdir, f"{paths.current().hooks_base_dir}/{subdir}"


def _names(directory: str) -> list[str]:
    try:
        return fs.list_visible(directory)
    except FileNotFoundError:
        return []
    except OSError as err:
        raise errors.HooksFailure(f"cannot read {directory}: {err.strerror}") from err


def _run_script(path: str, env: dict[str, str] | None, timeout_s: float) -> tuple[int, str]:
    if timeout_s <= 0:
        return (
            hooks.RESULT_FAIL,
            f"not run, because the hooks before it took {_TIMEOUT_S:g} seconds",
        )
    old = os.umask(_UMASK)
    try:
        done = process.run(
            [path],
            timeout_s=timeout_s,
            env=dict(os.environ) if env is None else env,
            exact_env=True,
            cwd="/",
            check=False,
        )
    except errors.CommandError as err:
        return hooks.RESULT_FAIL, str(err)
    finally:
        os.umask(old)
    output = done.output.strip()
    if done.failed:
        return hooks.RESULT_FAIL, output or f"no output, it {done.fail_reason}"
    return hooks.RESULT_OK, output
