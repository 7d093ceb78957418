"""Wrong input files of every program: an answer or an error with its reason, never a traceback.

Each value of a good file is replaced, one at a time, by values of other types and of other sizes.
The usual run takes some of these files, the long one takes many.
"""

from __future__ import annotations

import copy
import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .conftest import DATA, run_program

#: How many wrong files each test takes.
COUNT = 400 if "GANETI_LONG" in os.environ else 12
TEXTS = (
    "", "0", "-1", "1", "abc", "1.5", "nan", "inf", "-inf", "1e400", "9" * 30, "-" + "9" * 30,
    "1_0", "0x10", " 1", "\N{ARABIC-INDIC DIGIT THREE}", "?", "a,b", "a;b", "Y", "N", "M", "-",
    "node1", "node1.example.com", "x" * 5000, "1|2", "\x00",
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 1.5, -0.0, 10**30, -(10**30), float("inf"), float("nan"), 1e308,
    "", "abc", "node1", "\x00", [], [None], [[]], {}, {"x": 1}, {"": None}, [{}], "9" * 5000,
)  # fmt: skip
READERS = {
    "hbal": (), "hcheck": (), "hinfo": (), "hroller": ("--force",), "hsqueeze": (),
    "hspace": ("-l", "2"),
}  # fmt: skip


def check(name: str, *words: str) -> None:
    """Run a program, and check that it ended with an answer or an error."""
    code, out, err = run_program(name, *words)
    # With 2, hscan says that it could not read a cluster.
    assert code in ((0, 2) if name == "hscan" else (0, 1)), err
    assert out or err
    if code and name != "hcheck" and not out:
        assert "error" in err.lower() or "abort" in err.lower(), err
    assert "Traceback" not in err


def changed_lines(source: str, r: random.Random) -> str:
    """Change one column of one line, or the number of columns."""
    lines = source.splitlines()
    number = r.choice([n for n, line in enumerate(lines) if line])
    columns = lines[number].split("|")
    what = r.randrange(8)
    if what == 0:
        columns.pop(r.randrange(len(columns)))
    elif what == 1:
        columns.insert(r.randrange(len(columns) + 1), r.choice(TEXTS))
    elif what == 2 and "," in lines[number]:
        parts = lines[number].split(",")
        parts[r.randrange(len(parts))] = r.choice(TEXTS)
        columns = [",".join(parts)]
    else:
        columns[r.randrange(len(columns))] = r.choice(TEXTS)
    lines[number] = "|".join(columns)
    if what == 3:
        lines.insert(r.randrange(len(lines)), r.choice(["", lines[number]]))
    return "".join(f"{line}\n" for line in lines)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values of a document."""
    if path:
        yield path
    if isinstance(value, dict):
        for key, one in value.items():
            yield from places(one, (*path, key))
    elif isinstance(value, list):
        for number, one in enumerate(value):
            yield from places(one, (*path, number))


def changed_document(document: Any, r: random.Random) -> Any:
    """Replace or remove one value, or add a key."""
    new = copy.deepcopy(document)
    path = r.choice(list(places(new)))
    holder = new
    for key in path[:-1]:
        holder = holder[key]
    if r.random() < 0.15:
        del holder[path[-1]]
    else:
        holder[path[-1]] = r.choice(VALUES)
    return new


@pytest.mark.parametrize("name", sorted(READERS))
@pytest.mark.parametrize(
    "source", ["partly-used.data", "hbal-forth.data", "hspace-tiered-exclusive.data"]
)
def test_texts(name: str, source: str, tmp_path: Path) -> None:
    r = random.Random(f"{name} {source}")
    good = (DATA / source).read_text(encoding="utf-8")
    path = tmp_path / "cluster.data"
    for _ in range(COUNT):
        path.write_text(changed_lines(good, r), encoding="utf-8")
        check(name, "-t", str(path), *READERS[name])


@pytest.mark.parametrize(
    "source",
    ["hail-alloc-drbd", "hail-reloc-drbd", "hail-node-evac", "hail-change-group",
     "hail-multialloc-dedicated"],
)  # fmt: skip
def test_requests(source: str, tmp_path: Path) -> None:
    r = random.Random(source)
    good = json.loads((DATA / f"{source}.json").read_text(encoding="utf-8"))
    path = tmp_path / "request.json"
    for _ in range(COUNT):
        path.write_text(json.dumps(changed_document(good, r)), encoding="utf-8")
        check("hail", str(path))
        check("hinfo", "--ialloc-src", str(path))


# hsqueeze does not read from there.
@pytest.mark.parametrize("name", ["hbal", "hcheck", "hinfo", "hroller", "hscan", "hspace"])
def test_answers_of_the_rest_daemon(name: str, tmp_path: Path) -> None:
    r = random.Random(name)
    parts = ("groups", "nodes", "instances", "info")
    good = {
        part: json.loads((DATA / "rapi" / f"{part}.json").read_text(encoding="utf-8"))
        for part in parts
    }
    for _ in range(COUNT):
        for part, document in changed_document(good, r).items():
            (tmp_path / f"{part}.json").write_text(json.dumps(document), encoding="utf-8")
        if name == "hscan":
            check(name, "-d", str(tmp_path), f"file://{tmp_path}")
        else:
            check(name, "-m", f"file://{tmp_path}", *READERS[name])


def test_files_with_the_load(tmp_path: Path) -> None:
    r = random.Random(1)
    path = tmp_path / "load"
    for _ in range(COUNT):
        fields = ["instance1", "1", "2", "3", "4"]
        fields[r.randrange(5)] = r.choice(TEXTS)
        path.write_text(" ".join(fields), encoding="utf-8")
        check("hbal", "-t", str(DATA / "partly-used.data"), "-U", str(path))


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"\x00" * 100, b"[", b"{}", b"[" * 100_000])
@pytest.mark.parametrize("name", [*sorted(READERS), "hail"])
def test_other_files(name: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    check(name, *([str(path)] if name == "hail" else ["-t", str(path)]))
