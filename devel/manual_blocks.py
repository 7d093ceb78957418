"""The command blocks of ``doc/manual``: each of them is run by a test, or says why it is not.

A literal block of such a page holds shell commands. A comment right before a block says what
differs:

``needs: WHAT``
    The block is not run, because it needs WHAT, such as LVM or three machines. The test still
    checks that the commands, their options and the objects parse.
``text: WHAT``
    The block has no commands: the content of a file, or a drawing.
``output``
    The block is the output of the block before. ``...`` stands for any text, and the number of
    blanks does not matter.
``on: NODE``
    The commands run on this node instead of the master.
``exit: NUMBER``
    The last command ends with this exit code instead of 0.
``long: WHY``
    Only ``make check-long`` runs the block.

Two more comments need no block: ``prepare`` has lines of commands which run at that place and
which a reader does not need, such as the simulated failure of a node; ``last`` is followed by a
block which runs after all pages. Any other comment is an error, so that a typing mistake cannot
switch off a test.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from docutils import nodes
from docutils.core import publish_doctree

TOP = Path(__file__).resolve().parents[1]
MANUAL = TOP / "doc" / "manual"
#: In the order in which the pages run: the first one makes the cluster of all others.
FIRST = "tutorial-laptop"
_MARK = re.compile(r"(needs|text|on|exit|long): (.+)|(output|last)", re.DOTALL)
#: Words of the shell which may stand before a command.
_KEYWORDS = {"do", "then", "else", "!", "done", "fi", "esac"}
_REDIRECTIONS = {">", ">>", "<"}
_SUBSTITUTION = re.compile(r"\$\(([^()]*)\)")
_SEPARATORS = {";", "|", "||", "&", "&&", "(", ")"}


class Block(NamedTuple):
    """A block of a page, with what its comments say.

    ``kind`` is run, needs, text, output or prepare; ``reason`` says why it is not run.
    """

    page: str
    text: str
    kind: str
    reason: str = ""
    node: str = ""
    exit_code: int = 0
    long: bool = False
    last: bool = False


def pages() -> list[str]:
    """Return the names of the pages with commands, in the order in which they run."""
    found = sorted(path.stem for path in MANUAL.glob("*.rst"))
    return [FIRST, *(name for name in found if name != FIRST)]


def blocks(page: str, text: str | None = None) -> list[Block]:
    """Return the blocks of a page in their order.

    :param text: the page, if not the file of that name.
    :raises ValueError: a comment is none of those which this module explains.
    """
    if text is None:
        text = (MANUAL / f"{page}.rst").read_text(encoding="utf-8")
    tree = publish_doctree(text, settings_overrides={"halt_level": 2, "report_level": 2})
    found: list[Block] = []
    marks: dict[str, str] = {}
    for node in tree.findall(lambda one: isinstance(one, nodes.comment | nodes.literal_block)):
        content = node.astext()
        if isinstance(node, nodes.comment):
            first, _newline, rest = content.partition("\n")
            if first == "prepare":
                found.append(Block(page, rest, "prepare", node=marks.pop("on", "")))
            elif content.startswith("Generated from"):
                return []
            elif mark := _MARK.fullmatch(content):
                marks[mark[1] or mark[3]] = " ".join((mark[2] or "").split())
            else:
                raise ValueError(f"{page}: the comment {content!r} has no meaning")
            continue
        found.append(_block(page, content, marks))
        marks = {}
    if marks:
        raise ValueError(f"{page}: no block follows the comment {marks}")
    return found


def _block(page: str, text: str, marks: dict[str, str]) -> Block:
    kinds = [kind for kind in ("needs", "text", "output") if kind in marks]
    if len(kinds) > 1:
        raise ValueError(f"{page}: a block cannot be {' and '.join(kinds)}")
    kind = kinds[0] if kinds else "run"
    return Block(
        page, text, kind, reason=marks.get(kind, marks.get("long", "")), node=marks.get("on", ""),
        exit_code=int(marks.get("exit", "0")), long="long" in marks, last="last" in marks,
    )  # fmt: skip


def commands(block: str) -> Iterator[list[str]]:
    """Split a block into simple commands: words without separators, redirections and variables.

    A command in ``$(...)`` is one of its own, and ``SUBSTITUTED`` stands in its place.
    """
    for line in block.replace("\\\n", " ").splitlines():
        for inner in _SUBSTITUTION.findall(line):
            yield from commands(inner)
        lexer = shlex.shlex(
            _SUBSTITUTION.sub("SUBSTITUTED", line), posix=True, punctuation_chars=True
        )
        lexer.whitespace_split = True
        lexer.commenters = "#"
        words: list[str] = []
        redirected = False
        for word in [*lexer, ";"]:
            if redirected or word in _REDIRECTIONS:
                redirected = not redirected
            elif word in _SEPARATORS:
                if words and words[0] not in ("for", "while"):
                    yield words
                words = []
            elif words or not (word in _KEYWORDS or re.fullmatch(r"[A-Z_]+=.*", word)):
                words.append(word)


def matches(expected: str, shown: str) -> bool:
    """Return True if an output has the form which the manual shows; see ``output`` above."""
    pattern, separator = "", ""
    for word in expected.split():
        if word == "...":
            separator = r"(\s.*)?\s" if pattern else r"(.*\s)?"
        else:
            pattern += separator + ".*".join(re.escape(piece) for piece in word.split("..."))
            separator = r"\s+"
    if separator.endswith(r"?\s"):
        pattern += r"(\s.*)?"
    return re.fullmatch(pattern, shown.strip(), re.DOTALL) is not None
