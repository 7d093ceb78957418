"""The programs print what the original printed, to the last character."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .conftest import DATA, run_program

TOP = Path(__file__).resolve().parents[3]
GEN = DATA / "generated"
PROGRAMS = sorted(
    path.name for path in (TOP / "scripts").iterdir() if not path.name.startswith(("gnt", "gan"))
)


#: Here the original refuses every place (FailN1), because instances of the same group, or of
#: another one, had no other place before the request. A new instance that has one is not refused.
LENIENT = (
    "extra:303", "extra:341", "extra:505", "extra:524", "extra:543", "extra:878", "extra:1007",
    "extra:1008",
)  # fmt: skip

#: For a cluster without nodes the original prints the last line with a wrong title.
MENDED = ("extra:40", "extra:41")


def is_ours(command: str) -> bool:
    """Whether a command line runs programs which exist here."""
    if command.split()[0] in ("cat", "diff"):
        # What hscan writes is compared only where there is hscan.
        return "/hscan/" not in command or "hscan" in PROGRAMS
    return bool(set(re.findall(r"\bh[a-z]+\b(?= )", command.split(">")[0])) & set(PROGRAMS)) or any(
        f"; {name} " in command for name in PROGRAMS
    )


RECORDED: dict[str, dict[str, Any]] = {
    entry["id"]: entry
    for entry in json.loads((DATA / "expected.json").read_text(encoding="utf-8"))["entries"]
    if is_ours(entry["command"]) and entry["id"] not in (*MENDED, *LENIENT)
}
# Texts of help and versions are our own.
_OWN_TEXT = re.compile(r"--(help|version|help-completion)\b")


def words_of(command: str, scratch: Path) -> str:
    for name, value in (("DATA", DATA), ("GEN", GEN), ("T", scratch)):
        command = command.replace(f"${{{name}}}", str(value))
    return command


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    made = tmp_path_factory.mktemp("htools")
    names = (
        "hail-alloc-drbd", "hail-alloc-twodisks", "hail-change-group", "hail-node-evac",
        "hail-reloc-drbd", "hail-alloc-spindles",
    )  # fmt: skip
    for name in names:
        text = (DATA / f"{name}.json").read_text(encoding="utf-8")
        text = text.replace('"exclusive_storage": false', '"exclusive_storage": true')
        (made / f"{name}.json.excl-stor").write_text(text)
        text = re.sub(r'"spindles": [0-9]+,', "", text)
        (made / f"{name}.json.fail-excl-stor").write_text(text)
    text = (DATA / "hail-node-evac.json").read_text(encoding="utf-8")
    text = re.sub(r'"spindles": [0-9]+,', "", text)
    for mode in ("primary-only", "secondary-only", "all"):
        wanted = text.replace('"evac_mode": "all"', f'"evac_mode": "{mode}"')
        (made / f"hail-node-evac.json.{mode}").write_text(wanted)
    (made / "hscan").mkdir()
    # What hscan has written is the same cluster as the one which it has read.
    address = f"file://{DATA / 'rapi'}"
    run_program("hscan", "-d", str(made / "hscan"), address)
    (written,) = (made / "hscan").iterdir()
    for name, source in (("direct", ("-m", address)), ("fromtext", ("-t", str(written)))):
        code, out, _ = run_program("hinfo", "-p", "--print-instances", *source)
        assert code == 0 and "Cluster score: " in out
        (made / "hscan" / f"{name}.hinfo").write_text(out)
    yield made


def simple(command: str) -> bool:
    """Whether a command line needs no shell."""
    return not re.search(r"[;|<>&$`]", command.replace("${", "")) and not command.startswith(
        ("cat ", "diff ", "echo ")
    )


def check(entry: dict[str, Any], scratch: Path, found: tuple[int, str, str]) -> None:
    recorded = entry["recorded"]
    assert found[0] == recorded["exit"]
    if recorded["exit"] == 2 or "stdout" not in recorded or _OWN_TEXT.search(entry["command"]):
        return
    wanted, printed = words_of(recorded["stdout"], scratch), found[1]
    if "hscan" in entry["command"]:
        # The width of the first column depends on the length of a path.
        wanted, printed = (re.sub(" +", " ", text) for text in (wanted, printed))
    assert printed.rstrip("\n") == wanted.rstrip("\n")
    assert found[2].rstrip("\n") == words_of(recorded["stderr"], scratch).rstrip("\n")


@pytest.mark.programs
@pytest.mark.parametrize("number", RECORDED)
def test_prints_what_was_recorded(number: str, scratch: Path) -> None:
    entry = RECORDED[number]
    command = words_of(entry["command"], scratch)
    if simple(entry["command"]):
        words = shlex.split(command)
        check(entry, scratch, run_program(words[0], *words[1:]))
        return
    environ = {**os.environ, "PATH": f"{TOP / 'scripts'}:{os.environ['PATH']}"}
    ran = subprocess.run(
        ["bash", "-c", command], env=environ, capture_output=True, text=True, check=False
    )
    check(entry, scratch, (ran.returncode, ran.stdout, ran.stderr))


@pytest.mark.parametrize("number", LENIENT)
def test_what_was_broken_before_prevents_no_new_instance(number: str) -> None:
    """With the checks of capacity for its own place: without them the original succeeds, too."""
    (entry,) = [
        one
        for one in json.loads((DATA / "expected.json").read_text(encoding="utf-8"))["entries"]
        if one["id"] == number
    ]
    theirs = json.loads(entry["recorded"]["stdout"])
    assert not theirs["success"] and "FailN1" in theirs["info"]
    words = shlex.split(words_of(entry["command"], Path()))
    code, out, _ = run_program(words[0], *words[1:])
    assert code == 0
    assert json.loads(out)["success"]


def test_there_is_something_to_check() -> None:
    assert len(RECORDED) > 400
    assert {"hail", "hbal", "hinfo"} <= set(PROGRAMS)
