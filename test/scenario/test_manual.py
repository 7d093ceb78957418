"""The commands of the manual (``doc/manual``) work as they stand there.

All pages share the virtual cluster which the first one, the tutorial, makes. A test is a page;
within it, the blocks run in their order. ``devel/manual_blocks.py`` explains the comments which
say what differs. The blocks need ``~``, so each run has a home directory of its own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import ROOT, Cluster

from devel import manual_blocks

LONG = os.environ.get("GANETI_LONG") == "1"


class Reader:
    """Somebody who types the blocks of the manual into one terminal."""

    def __init__(self) -> None:
        # A short path: the names of unix sockets are limited.
        self.home = Path(tempfile.mkdtemp(prefix="gnt-man-"))
        self.directory = str(ROOT)
        self.environment = Cluster.outside() | {"HOME": str(self.home)}

    def type(self, block: manual_blocks.Block) -> None:
        """Run a block, and keep the variables and the directory for the next one.

        :raises AssertionError: a command ends with another exit code than the page says.
        """
        kept = self.home / "environment"
        shell = ["bash", "-e", "-u", "-o", "pipefail", "-c", f"{block.text}\nenv -0 >{kept}\n"]
        if block.node:
            shell[:0] = [str(self.home / "vc" / block.node / "cmd")]
        done = subprocess.run(
            shell, env=self.environment, cwd=self.directory, stdin=subprocess.DEVNULL,
            capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == block.exit_code, (
            f"{block.page}: exit {done.returncode}\n{block.text}\n{done.stdout}{done.stderr}"
        )
        self.shown = done.stdout + done.stderr
        if not block.node and kept.exists():
            pairs = kept.read_text().rstrip("\0").split("\0")
            self.environment = dict(pair.split("=", 1) for pair in pairs)
            self.directory = self.environment["PWD"]
            kept.unlink()

    def read(self, page: str) -> None:
        """Type a page from its beginning to its end."""
        skipped = False
        for block in manual_blocks.blocks(page):
            if block.kind == "output":
                assert skipped or manual_blocks.matches(block.text, self.shown), (
                    f"{page}: the page shows\n{block.text}\nand the output is\n{self.shown}"
                )
            elif block.kind in ("run", "prepare") and not block.last:
                skipped = block.long and not LONG
                if not skipped:
                    self.type(block)
            elif block.kind == "needs":
                skipped = True


@pytest.fixture(scope="module")
def reader() -> Iterator[Reader]:
    one = Reader()
    try:
        one.read(manual_blocks.FIRST)
        yield one
        for block in manual_blocks.blocks(manual_blocks.FIRST):
            if block.last:
                one.type(block)
        assert not (one.home / "vc").exists()
    finally:
        if (one.home / "vc").exists():
            subprocess.run([ROOT / "tools/vcluster", "destroy", one.home / "vc"], check=False)
        shutil.rmtree(one.home, ignore_errors=True)


def test_the_tutorial(reader: Reader) -> None:
    """The fixture has typed it: its cluster is there, with its instance."""
    assert (reader.home / "vc" / "vcluster.json").is_file()


#: The pages which ``make check`` runs; ``make check-long`` runs the others, too.
SHORT = ("add-node", "move-instance")


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(name, marks=() if name in SHORT else pytest.mark.long)
        for name in manual_blocks.pages()[1:]
        if any(block.kind in ("run", "prepare") for block in manual_blocks.blocks(name))
    ],
)
def test_a_page(reader: Reader, page: str) -> None:
    reader.read(page)
