"""The command ``python -m devel.shape``: print the figures for the whole tree or a package."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from devel.shape import copies, functions, imports, source, units, unused

LIMITS = Path(__file__).with_name("limits.json")

Sources = Sequence[source.Source]


def _circles(sources: Sources) -> list[str]:
    graph = imports.file_graph(sources, typing=True)
    return [" <-> ".join(group) for group in imports.circles(graph)]


def _arrows_back(sources: Sources) -> list[str]:
    graph = imports.file_graph(sources, typing=True)
    return [
        f"{folder or 'ganeti'}: {part} -> {target}"
        for folder, part, target in imports.arrows_back(graph)
    ]


def _unused(sources: Sources) -> list[str]:
    found = unused.unused(source.read(), source.programs())
    files = {one.name for one in sources}
    patterns = unused.allowed()
    return [
        str(one)
        for one in found
        if one.file in files and not any(unused.matches(one, pattern) for pattern in patterns)
    ]


#: Each figure: what it counts, and the function which lists what is counted.
FIGURES: dict[str, Callable[[Sources], Sequence[object]]] = {
    f"functions of more than {functions.LONG} lines": functions.long_functions,
    f"functions nested deeper than {functions.DEEP}": functions.deep_functions,
    f"functions with {functions.WIDE} or more parameters": functions.wide_functions,
    "functions below cmdlib/ops which take a whole unit": functions.unit_helpers,
    "functions below cmdlib/ops for which a Context is enough": units.needless,
    "circles of files": _circles,
    "arrows back inside folders": _arrows_back,
    f"copies of {copies.RUN} or more lines": copies.copies,
    "names without a caller": _unused,
}


def measure(sources: Sources) -> dict[str, list[str]]:
    """Measure everything: each figure, and one line of text for each thing which it counts."""
    return {name: [str(one) for one in lister(sources)] for name, lister in FIGURES.items()}


def limits() -> dict[str, int]:
    """Read the limit of each figure."""
    read: dict[str, int] = json.loads(LIMITS.read_text(encoding="utf-8"))
    return read


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit code is 1 if a figure is above its limit."""
    parser = argparse.ArgumentParser(prog="python -m devel.shape", description=__doc__)
    parser.add_argument("--package", default="", metavar="FOLDER", help="such as cmdlib/ops")
    parser.add_argument("--list", action="store_true", help="print what each figure counts")
    parser.add_argument("--lines", action="store_true", help="print the lines of each package")
    options = parser.parse_args(arguments)
    sources = source.read(package=options.package)
    if not sources:
        parser.error(f"there is no Python file below lib/ganeti/{options.package}")
    measured = measure(sources)
    allowed = limits()
    whole = not options.package
    for name, found in measured.items():
        limit = f"  (limit {allowed[name]})" if whole else ""
        print(f"{len(found):6} {name}{limit}")
        if options.list:
            for text in found:
                print(f"         {text}")
    total = Counter[str]()
    for one in sources:
        total[one.package] += len(one.text.splitlines())
    print(f"{total.total():6} lines in {len(sources)} files")
    if options.lines:
        for package, count in total.most_common():
            print(f"         {count:6} {package}")
    worse = [name for name, found in measured.items() if len(found) > allowed[name]]
    return int(whole and bool(worse))
