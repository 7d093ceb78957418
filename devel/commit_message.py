"""Check the message of a commit: ``package: change it``, and the reason after an empty line.

``devel/git-hooks/commit-msg`` calls this program with the file of the message. A subject names the
packages of ``lib/ganeti``, the folders at the top, or ``project``, and then says in the imperative
what the commit does.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
LONGEST = 72
#: Subjects which git writes itself.
OF_GIT = ("Merge ", "Revert ", "fixup! ", "squash! ", "amend! ")
#: Beginnings of a sentence which tells about the code and not what the commit does.
NOT_A_VERB = frozenset(
    {"a", "an", "the", "no", "one", "two", "some", "each", "every", "all", "new"}
)
#: Verbs in the imperative which end like another form.
VERBS = frozenset(
    {"address", "bring", "discuss", "embed", "exceed", "express", "feed", "focus", "need", "pass"}
    | {"press", "proceed", "process", "seed", "shed", "speed", "string", "suppress", "bypass"}
)


def components() -> set[str]:
    """Return the names which may stand before the colon."""
    inside = {path.name.removesuffix(".py") for path in (TOP / "lib" / "ganeti").iterdir()}
    outside = {path.name for path in TOP.iterdir() if path.is_dir()}
    return {name for name in inside | outside if name[0] not in "._"} | {"project"}


def faults(message: str) -> Iterator[str]:
    """Yield what is wrong with a message, a sentence for each fault."""
    lines = [line for line in message.splitlines() if not line.startswith("#")]
    subject = lines[0] if lines else ""
    if subject.startswith(OF_GIT):
        return
    if len(subject) > LONGEST:
        yield f"the subject has {len(subject)} characters; {LONGEST} are allowed"
    if len(lines) > 1 and lines[1].strip():
        yield "the second line must be empty"
    names, colon, change = subject.partition(": ")
    if not colon or not change.strip():
        yield "the subject must read 'package: change it'"
        return
    unknown = [name for name in names.split(", ") if name not in components()]
    if unknown:
        yield (
            f"{', '.join(map(repr, unknown))} is neither a package of lib/ganeti nor a folder"
            " at the top, nor 'project'"
        )
    first = re.split(r"\W", change, maxsplit=1)[0].lower()
    if first in NOT_A_VERB or (first not in VERBS and re.search(r"(ed|ing|[^s]s)$", first)):
        yield f"begin the change with a verb in the imperative, not with {first!r}"
    if subject.endswith("."):
        yield "the subject has no full stop at its end"


def main() -> int:
    """Check the file that the first argument names; the exit code is 1 if something is wrong."""
    found = list(faults(Path(sys.argv[1]).read_text(encoding="utf-8")))
    for fault in found:
        print(f"commit-msg: {fault}", file=sys.stderr)
    if found:
        print("commit-msg: CONTRIBUTING.md, section Commits, has the form", file=sys.stderr)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
