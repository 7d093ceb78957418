"""Code and texts use the words on which ``doc/glossary.rst`` decides."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
GLOSSARY = TOP / "doc" / "glossary.rst"

#: For each row of the table in the glossary: what must not be found, ignoring case.
PATTERNS = {
    "half, halves": r"(?<![a-z])(half(?! (of|an? (second|minute|hour|day)|the|as )\b)|halves)"
    r"(?![a-z])",
    "in step": r"\bin[ _]step\b",
    "meet, met": r"(?<!prerequisites not )(?<![a-z])(meets?|met|meeting)(?![a-z])",
    "wish": r"wish(es|ed)?(?![a-z])",
    "card": r"(?<!sound )(?<!graphics )(?<!wild)(?<![a-z])cards?(?![a-z])",
    "room": r"(?<![a-z])rooms?(?![a-z])",
    "stranger": r"strangers?(?![a-z])",
    "silent": r"silent",
    "behind": r"(\b(is|are|was|were|be|been|fell|falls?|stays?|remains?) behind\b"
    r"(?! (an?|the|it|its)\b))|_behind|behind_|\bbehind\(",
    "told": r"(?<![a-z])told(?![a-z])",
    "rehearse": r"rehears",
    "lane": r"(?<![a-z])lanes?(?![a-z])",
    "loose disk": r"(?<![a-z])loose(?![a-z])",
    "arrival": r"(?<![a-z])arrivals?(?![a-z])",
    "trial": r"(?<![a-z])trials?(?![a-z])",
    "confine": r"confine",
    "two writers, one writer": r"(two|one)[ _-]writers?\b",
    "seed 001": r"\bseeds?[ /]00\d",
    "words (of ``ht``)": r"opcodes[./]words|opcodes import words|``ht``[^.]*\bwords\b",
    "door, doorway, front door": r"(?<![a-z])door(s|ways?)?(?![a-z])",
    "wing, ground floor": r"(?<![a-z])wings?(?![a-z])|ground[ _]floor",
    "whoever, whatever": r"\b(whoever|whatever)\b",
    "as there": r"\bas there[,;.:]",
    "picture (of a job)": r"picture",
    "scene": r"(?<![a-z])scenes?(?![a-z])",
    "go on alone, waiting disk": r"\bgo(es|ing)?[_ ]on[_ ]alone\b|\blets?[_ ](\w+ ){0,3}go[_ ]on\b"
    r"|waiting[_ ]disk|disks? (which|that) waits?\b",
    "left work, left-over work": r"(?<!has )(?<!have )left[_ -](over[_ -])?work\b",
    "keeper": r"(?<![a-z])keepers?(?![a-z])",
    "sight (of a node or daemon)": r"(?<![a-z`\"])sights?(?![a-z])",
    "look (at intervals)": r"\b_?looks?_s\b|\b(two|each|first|next|one) looks?\b(?! at\b|-)",
    "at work": r"(?<![\"'`])\bat[ _]work\b",
    "place (of a job or process)": r"job_?places?\b"
    r"|\bplaces? (of|for) (a|the|its|one|each) (job|process)\b",
    # QEMU and asyncio spell it with two letters, and so does a published message.
    "cancelled, cancelling": r"(?<![\".])(?<!successfully )cancell(ed|ing)(?![\"(]|error)",
}
SUFFIXES = {".py", ".rst", ".md", ".sh", ""}
FOLDERS = ("lib", "daemons", "scripts", "tools", "devel", "man", "doc", "packaging")


def _files() -> list[str]:
    found = [path for folder in FOLDERS for path in (TOP / folder).rglob("*") if path.is_file()]
    found += [TOP / "README.md", TOP / "CONTRIBUTING.md", TOP / "Makefile", TOP / "setup.py"]
    return sorted(
        str(path.relative_to(TOP))
        for path in found
        if path.exists()
        and path.suffix in SUFFIXES
        and path != GLOSSARY
        and not {"__pycache__", "ganeti.egg-info"} & set(path.parts)
    )


#: For each row: texts one of which every match has. Looking for them first saves most of the time.
STEMS = {
    "half, halves": ("half", "halves"),
    "in step": ("in step", "in_step"),
    "meet, met": ("meet", "met"),
    "two writers, one writer": ("writer",),
    "loose disk": ("loose",),
    "seed 001": ("seed",),
    "words (of ``ht``)": ("words",),
    "door, doorway, front door": ("door",),
    "wing, ground floor": ("wing", "ground"),
    "whoever, whatever": ("whoever", "whatever"),
    "picture (of a job)": ("picture",),
    "go on alone, waiting disk": ("alone", "go_on", "go on", "wait"),
    "left work, left-over work": ("left",),
    "sight (of a node or daemon)": ("sight",),
    "look (at intervals)": ("look",),
    "at work": ("at work", "at_work"),
    "place (of a job or process)": ("place",),
    "cancelled, cancelling": ("cancell",),
}


def words_found(text: str) -> list[str]:
    """``line number: word: line`` for each word of the table in a text."""
    small = text.lower()
    wanted = [
        (word, re.compile(pattern, re.IGNORECASE))
        for word, pattern in PATTERNS.items()
        if any(stem in small for stem in STEMS.get(word, (word,)))
    ]
    found = []
    for number, line in enumerate(text.splitlines() if wanted else (), 1):
        if "glossary: allow" in line:
            continue
        for word, pattern in wanted:
            if pattern.search(line):
                found.append(f"{number}: {word}: {line.strip()}")
    return found


def test_every_row_of_the_table_is_looked_for() -> None:
    text = GLOSSARY.read_text(encoding="utf-8")
    table = text[text.index("\nnot  ") :].split("\n====")[1]
    rows = [re.split(r"  +", line)[0] for line in table.splitlines()[1:] if line.strip()]
    assert rows == list(PATTERNS)


def test_a_row_without_stems_is_one_word_or_phrase() -> None:
    """Otherwise no text has it, and the pattern is never looked for."""
    assert [row for row in PATTERNS.keys() - STEMS.keys() if not re.fullmatch("[a-z ]+", row)] == []
    assert STEMS.keys() <= PATTERNS.keys()


def test_the_terms_are_sorted() -> None:
    text = GLOSSARY.read_text(encoding="utf-8")
    part = text[text.index("Terms\n=====") : text.index("Words that we do not use")]
    terms = re.findall(r"^(\w.*)\n    \S", part, re.MULTILINE)
    assert len(terms) > 40
    assert terms == sorted(terms, key=str.lower)


@pytest.mark.parametrize("file", _files())
def test_the_old_words_are_gone(file: str) -> None:
    found = words_found((TOP / file).read_text(encoding="utf-8", errors="replace"))
    assert not found, f"{file}: see doc/glossary.rst\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("the other half is filled", "half, halves"),
        ("def _meet(self):", "meet, met"),
        ("disk_wishes = []", "wish"),
        ("def behind(self) -> int:", "behind"),
        ("Wishes = list", "wish"),
        ("what the node was told", "told"),
        ("let the guest go on", "go on alone, waiting disk"),
        ("a disk which waits", "go on alone, waiting disk"),
        ("the sight of a node", "sight (of a node or daemon)"),
        ("LOOK_S = 5.0", "look (at intervals)"),
        ("the place of a job", "place (of a job or process)"),
        ("cancelling", "cancelled, cancelling"),
    ],
)
def test_the_check_finds(line: str, word: str) -> None:
    assert any(f": {word}: " in found for found in words_found(line))


@pytest.mark.parametrize(
    "line",
    [
        "half of the nodes",
        "the certificate behind a name",
        "a wildcard",
        "mushroom",
        "it owes",
        "meter",
    ],
)
def test_the_check_allows(line: str) -> None:
    assert not words_found(line)
