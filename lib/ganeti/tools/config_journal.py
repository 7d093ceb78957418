"""The option ``--journal`` of ``cfgshell``: a journal which does not belong to ``config.data``.

Source: ``doc/design-config-journal.rst``.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from ganeti import errors
from ganeti.configfile import by_hand, files
from ganeti.constants import cli as exit_codes
from ganeti.platform import paths
from ganeti.tools import config_files
from ganeti.tools.config_files import say

_SHOW: Final = "show"
_SET_ASIDE: Final = "set-aside"
_APPLY: Final = "apply"
#: What may be done with a journal.
ACTIONS: Final = (_SHOW, _SET_ASIDE, _APPLY)
# So much of a change is printed.
_MOST_TEXT: Final = 300


def run(action: str, path: str, *, base: str | None = None, write: bool = False) -> int:
    """Do something with the journal of a file; errors are printed.

    :param action: one of :data:`ACTIONS`.
    :param path: the file of a configuration.
    :param base: a copy of the file, for ``apply``; None for one which lies beside the file.
    :param write: changes are allowed.
    :returns: the exit code.
    """
    try:
        if action == _SHOW:
            _print(path)
            return exit_codes.EXIT_SUCCESS
        if not write:
            raise errors.ParameterError(f"--journal={action} changes files. Add --write.")
        config_files.refuse_while_master_runs(os.path.dirname(path) or ".")
        with config_files.lock_of(path):
            _set_aside(path) if action == _SET_ASIDE else _apply(path, base)
    except OSError as err:
        say(f"cfgshell: {err.filename or path}: {err.strerror}")
    except errors.GenericError as err:
        say(f"cfgshell: {err}")
    else:
        return exit_codes.EXIT_SUCCESS
    return exit_codes.EXIT_FAILURE


def _print(path: str) -> None:
    found = by_hand.look(path)
    journal = files.journal_of(path)
    for name in found.set_aside:
        print(f"{name} was set aside earlier. Remove it when nobody needs it.")
    if not found.exists:
        print(f"There is no {journal}: {path} has all changes.")
        return
    for one in found.changes:
        number = "?" if one.serial_no is None else one.serial_no
        text = one.new_text
        print(f"{number}: {text if len(text) <= _MOST_TEXT else text[:_MOST_TEXT] + '...'}")
    count = f"{len(found.changes)} change{'' if len(found.changes) == 1 else 's'}"
    if found.belongs:
        print(
            f"{journal} belongs to {path}, which lacks {count}. 'daemon-util fold-journal' writes"
        )
        print("them into the file.")
        return
    if os.path.exists(path):
        number = "unknown" if found.serial_no is None else str(found.serial_no)
        print(f"{journal} has {count} of another text than {path} (serial number {number}).")
    else:
        print(f"{journal} has {count}, and {path} is missing.")
    _print_ways(path, found.bases)


def _print_ways(path: str, bases: Sequence[str]) -> None:
    print("Choose one of these ways, while no master daemon runs here:")
    print("- Another master candidate has the changes: run 'gnt-cluster master-failover' there.")
    place = "" if path == paths.current().cluster_conf_file else f" {path}"
    if bases:
        print("- Go back to the file before it was edited or replaced, with these changes:")
        for base in bases:
            print(f"  cfgshell --write --journal=apply --base={base}{place}")
    else:
        print("- Go back to a copy of the file from before it was edited or replaced, with these")
        print(f"  changes: cfgshell --write --journal=apply --base=COPY{place}")
    print("- Go on with the file as it is, without these changes:")
    print(f"  cfgshell --write --journal=set-aside{place}")


def _set_aside(path: str) -> None:
    if not os.path.exists(path):
        raise errors.ConfigurationError(f"{path} is missing. Put a copy of it there first.")
    found = by_hand.look(path)
    if not found.exists:
        raise errors.ConfigurationError(f"there is no {files.journal_of(path)}")
    if found.belongs:
        raise errors.ConfigurationError(
            f"{files.journal_of(path)} belongs to {path}. Nothing has to be decided; 'daemon-util"
            " fold-journal' writes its changes into the file."
        )
    kept = files.set_aside(path)
    print(f"The journal is kept as {kept}. The next master daemon begins with {path}.")


def _apply(path: str, base: str | None) -> None:
    bases = by_hand.copies_with(path) if base is None else [base]
    if not bases:
        raise errors.ConfigurationError(
            f"no copy beside {path} is the file to which the journal belongs. Name one with --base."
        )
    kept = by_hand.go_back(path, bases[0])
    print(f"{path} is {bases[0]} with the changes in the journal.")
    if kept is not None:
        print(f"The file before is kept as {kept}.")
