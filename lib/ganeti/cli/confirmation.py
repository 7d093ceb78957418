"""Ask the user for confirmation before a command does something that cannot be undone."""

from __future__ import annotations

from ganeti.cli import failures, terminal
from ganeti.cli.command import Values


def ask(values: Values, question: str, option: str = "--force") -> int | None:
    """Ask for confirmation on the terminal; a dry run changes nothing and needs none.

    :param option: the option which makes the question unnecessary; an error message names it.
    :returns: None to continue, else the exit code: 1 without a terminal, 13 after a "no".
    """
    if values.get("dry_run"):
        return None
    if not terminal.can_ask():
        terminal.err(f"{question}\nThere is no terminal to ask on. Add {option} to continue.")
        return failures.EXIT_FAILURE
    return None if terminal.confirm(question) else failures.EXIT_CONFIRMATION
