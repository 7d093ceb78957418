"""Running ``xl``, the program which drives Xen.

``xl`` serialises changes itself, with a lock of its own. Where it takes a domain, it is given the
id: an instance may have a name which is a number.

Source: xl(1).
"""

from __future__ import annotations

import logging
import os
import shutil
from dataclasses import replace

from ganeti import errors
from ganeti.hypervisor import host
from ganeti.hypervisor.xen import parse
from ganeti.platform import paths
from ganeti.utils import fs, process

PROGRAM = "xl"
#: For questions and small changes.
TIMEOUT_S = 120.0
#: For making a domain: its memory is allocated and scrubbed.
CREATE_S = 900.0

_SENT_SUFFIX = "--migratedaway"
_PACKAGES = "xen-hypervisor-amd64 and xen-utils"


def is_installed() -> bool:
    """Return True if this machine has the program."""
    return _program() is not None


def runs_under_xen() -> bool:
    """Return True if this system is the one which drives Xen (its domain 0)."""
    try:
        return "control_d" in fs.read_file(paths.current().xen_capabilities_file)
    except OSError:
        return False


def is_possible() -> bool:
    """Return True if this machine may have guests under Xen: False only when it certainly has
    none.
    """
    if runs_under_xen() or os.path.exists("/dev/xen/privcmd"):
        return True
    try:
        return fs.read_file("/sys/hypervisor/type").strip() == "xen"
    except OSError:
        return False


def problem() -> str | None:
    """Return why no guest can run under Xen here, and what to do; None when there is no reason."""
    if not is_installed():
        return f"the program xl is missing. Install the packages {_PACKAGES} on every node."
    if not runs_under_xen():
        return (
            "this machine does not run under Xen. Install the packages"
            f" {_PACKAGES}, and choose Xen in the boot menu."
        )
    return None


def _program() -> str | None:
    path = os.environ.get("PATH", process.DEFAULT_PATH)
    return shutil.which(PROGRAM, path=path) or shutil.which(PROGRAM, path=process.DEFAULT_PATH)


def run(*words: str, timeout_s: float = TIMEOUT_S, quiet: bool = False) -> str:
    """Run ``xl`` with these words; return what it printed.

    :param quiet: do not log the command, because it is run very often.
    :raises HypervisorError: it failed; has the last lines of its output.
    """
    done = process.run([PROGRAM, *words], timeout_s=timeout_s, check=False, log=not quiet)
    return _output_of(done, words[0])


def ask(*words: str) -> str:
    """Run ``xl`` with a question, which changes nothing; once more when a signal ended it.

    :raises HypervisorError: it failed.
    """
    for last in (False, True):
        done = process.run([PROGRAM, *words], timeout_s=TIMEOUT_S, check=False, log=False)
        if done.signal is None or last:
            break
        logging.warning("'xl %s' %s, asking again", words[0], done.fail_reason)
    return _output_of(done, words[0])


def _output_of(done: process.Completed, command: str) -> str:
    if done.failed:
        raise errors.HypervisorError(
            f"'xl {command}' {done.fail_reason}:"
            f" {host.last_lines(done.complaint) or 'it printed nothing'}"
        )
    return done.stdout


def domains() -> list[parse.Domain]:
    """Return all domains of this machine, domain 0 included; none where there is no Xen below.

    :raises HypervisorError: they are not known: Xen does not answer, or not as expected.
    """
    if not is_possible():
        return []
    try:
        found = parse.parse_list(ask("list"))
        # The name which xl gives to a guest that it has sent.
        return [replace(one, name=one.name.removesuffix(_SENT_SUFFIX)) for one in found]
    except errors.ParseError as err:
        raise errors.HypervisorError(f"cannot read the output of 'xl list': {err}") from err


def uptimes() -> dict[int, str]:
    """Return how long each domain runs, by its id, as ``xl`` prints it.

    :raises HypervisorError: Xen does not answer.
    """
    return parse.parse_uptimes(ask("uptime"))


def long_domains() -> dict[int, parse.LongDomain]:
    """Type, name and UUID of all domains, by their id.

    :raises HypervisorError: they are not known.
    """
    try:
        return parse.parse_long(ask("list", "--long"))
    except errors.ParseError as err:
        raise errors.HypervisorError(f"cannot read the output of 'xl list --long': {err}") from err


def info() -> dict[str, str]:
    """Return what ``xl info`` prints.

    :raises HypervisorError: Xen does not answer.
    """
    return parse.parse_info(ask("info"))
