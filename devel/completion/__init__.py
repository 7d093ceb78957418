"""Completion for bash, zsh and fish, generated from the command tables: ``make completion``.

One program serves all three shells: ``gnt-complete`` (:mod:`~.engine`), a POSIX shell script which
contains the tables of the commands, and the options of programs without commands. A shell calls it
with the words of the command line, and offers the words which it prints. Each shell needs only some
lines of its own (:mod:`~.shells`), so a new shell, or a new kind of word, is one change.

Names of instances, nodes, groups, networks and jobs come from files which every node has, so
completion starts no Python and sends no request to the master, except for job filters and tags.

============ =====================================================================================
``tables``   the possible words at each position, from the tables and parsers of programs
``engine``   the shell script with these tables, and with the source of each kind of word
``shells``   the file for each shell
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

    :param engine_path: path of ``gnt-complete`` when it is used, which may differ from the
        directory.
    """
    fs.make_dirs(directory)
    programs = [*tables.load(names), *tables.load_without_options()]
    plain = tables.load_plain()
    fs.write_file(f"{directory}/{ENGINE}", engine.generate(programs, plain), mode=0o755)
    known = [*(one.name for one in programs), *(one.name for one in plain)]
    for name, text in shells.generate(known, engine_path).items():
        fs.write_file(f"{directory}/{name}", text, mode=0o644)


def main(argv: Sequence[str] | None = None) -> int:
    """Write the files of all shells; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="build-completion", description="Write completion for bash, zsh and fish."
    )
    parser.add_argument("directory", help="directory for the files")
    parser.add_argument(
        "--engine",
        metavar="PATH",
        help=f"path of {ENGINE} when it is used (default: in the directory)",
    )
    options = parser.parse_args(argv)
    directory = os.path.abspath(options.directory)
    build(directory, options.engine or f"{directory}/{ENGINE}")
    return 0
