"""Completion for bash, zsh and fish, made from the command tables; ``build-completion``.

One program answers for all three shells: ``gnt-complete`` (:mod:`~.engine`), a POSIX shell script
which holds the tables. A shell calls it with the words of the command line so far and shows what it
prints; the glue for each shell is some lines (:mod:`~.shells`). So a shell that is added, or a kind
of word, is one change, and a test of one shell says much about the others.

Names of instances, nodes, groups, networks and jobs come from files every node has: completing
starts no Python and does not ask the master. The exceptions are job filters and tags.

============ =====================================================================================
``tables``   what can follow what, from the tables of :mod:`ganeti.client`
``engine``   these as a shell script, and where words of each kind come from
``shells``   the glue
============ =====================================================================================
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence

from devel.completion import engine, shells, tables
from ganeti.client import PROGRAMS
from ganeti.utils import fs

__all__ = ["build", "main"]

ENGINE = "gnt-complete"


def build(directory: str, engine_path: str, names: Sequence[str] = tuple(PROGRAMS)) -> None:
    """Write ``gnt-complete``, ``bash``, ``_ganeti`` (zsh) and ``fish`` into a directory.

    :param engine_path: where ``gnt-complete`` will be when it is used.
    """
    fs.make_dirs(directory)
    programs = tables.load(names)
    fs.write_file(f"{directory}/{ENGINE}", engine.generate(programs), mode=0o755)
    for name, text in shells.generate([program.name for program in programs], engine_path).items():
        fs.write_file(f"{directory}/{name}", text, mode=0o644)


def main(argv: Sequence[str] | None = None) -> int:
    """Write the files of all shells; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="build-completion", description="Write completion for bash, zsh and fish."
    )
    parser.add_argument("directory", help="where to write")
    parser.add_argument(
        "--engine",
        metavar="PATH",
        help=f"where {ENGINE} will be when it is used (in the directory)",
    )
    options = parser.parse_args(argv)
    directory = os.path.abspath(options.directory)
    build(directory, options.engine or f"{directory}/{ENGINE}")
    return 0
