"""The graph of imports: circles of files, and arrows that run back inside a folder.

An arrow leads from a file to each file which it imports, also inside a function; imports below
``if TYPE_CHECKING:`` count on request.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from devel.shape.source import Source, statements_in


class Import(NamedTuple):
    """One imported module, where and by whom."""

    file: str
    line: int
    module: str
    #: Below ``if TYPE_CHECKING:``, for annotations only.
    typing_only: bool = False


def statements_below(node: ast.AST) -> Iterator[ast.AST]:
    """Yield all statements below a node in their order; every import is one."""
    for inner in statements_in(node):
        yield inner
        yield from statements_below(inner)


def imports_of(tree: ast.AST, file: str) -> Iterator[Import]:
    """Yield all imports of a parsed file; relative ones are reported as module ``.``."""
    statements = list(statements_below(tree))
    typing_only = {
        inner
        for node in statements
        if isinstance(node, ast.If)
        and isinstance(node.test, ast.Name)
        and node.test.id == "TYPE_CHECKING"
        for inner in statements_below(node)
    }
    for node in statements:
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level:
            names = ["."]
        elif isinstance(node, ast.ImportFrom):
            # "from ganeti.utils import process" names a module by its last word.
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            yield Import(file, node.lineno, name, node in typing_only)


Graph = Mapping[str, Collection[str]]


def file_graph(sources: Iterable[Source], *, typing: bool = False) -> dict[str, set[str]]:
    """Graph of the files of the package ``ganeti``: each file, and the files which it imports.

    ``from package import name`` leads to the module of that name, or else to the ``__init__`` of
    the package.

    :param typing: imports for annotations only count, too.
    """
    by_name = {source.name: source for source in sources}
    graph: dict[str, set[str]] = {name: set() for name in by_name}
    for name, source in by_name.items():
        for one in imports_of(source.tree, name):
            target = _file_of(one.module, by_name)
            if target and target != name and (typing or not one.typing_only):
                graph[name].add(target)
    return graph


def _file_of(module: str, known: Mapping[str, Source]) -> str:
    parts = module.split(".")
    if parts[0] != "ganeti":
        return ""
    parts = parts[1:]
    for end in (len(parts), len(parts) - 1):
        path = "/".join(parts[:end])
        for candidate in (f"{path}.py", f"{path}/__init__.py"):
            if path and candidate in known:
                return candidate
    return ""


def circles(graph: Graph) -> list[list[str]]:
    """Groups of nodes which reach each other (strongly connected components), the largest first."""
    back: dict[str, list[str]] = {node: [] for node in graph}
    for node, targets in graph.items():
        for target in targets:
            back[target].append(node)
    left = set(graph)
    found = []
    # The node whose search ended last reaches others first (Kosaraju's method).
    for node in reversed(_ended(graph)):
        group = _reached(back, node, left)
        left -= group
        if len(group) > 1:
            found.append(sorted(group))
    return sorted(found, key=lambda group: (-len(group), group))


def _ended(graph: Graph) -> list[str]:
    """Nodes in the order in which a search from all of them, depth first, ends at each."""
    ended: list[str] = []
    seen: set[str] = set()
    for start in sorted(graph):
        stack = [] if start in seen else [(start, iter(sorted(graph[start])))]
        seen.add(start)
        while stack:
            node, targets = stack[-1]
            following = next((target for target in targets if target not in seen), None)
            if following is None:
                ended.append(node)
                stack.pop()
            else:
                seen.add(following)
                stack.append((following, iter(sorted(graph[following]))))
    return ended


def _reached(graph: Graph, start: str, among: Collection[str]) -> set[str]:
    """Nodes which can be reached from one of them through others; empty if it is not among them."""
    found: set[str] = set()
    pending = [start]
    while pending:
        node = pending.pop()
        if node in among and node not in found:
            found.add(node)
            pending.extend(graph[node])
    return found


def folder_graphs(graph: Graph) -> dict[str, dict[str, set[str]]]:
    """For each folder, the graph of its parts: its modules and its sub-folders.

    An arrow between two parts is there if any file of the one imports any file of the other.
    """
    folders: dict[str, dict[str, set[str]]] = {}
    for name, targets in graph.items():
        parts = name.split("/")
        for end in range(len(parts)):
            folder = "/".join(parts[:end])
            part = parts[end]
            inside = folders.setdefault(folder, {})
            arrows = inside.setdefault(part, set())
            for target in targets:
                others = target.split("/")
                if others[:end] == parts[:end] and others[end] != part:
                    arrows.add(others[end])
                    inside.setdefault(others[end], set())
    return folders


def arrows_back(graph: Graph) -> list[tuple[str, str, str]]:
    """Arrows inside folders which run against the best order: folder, from, to.

    In each circle of parts a near-best order is found by the greedy method of Eades, Lin and Smyth;
    the arrows against it are reported. ``__init__`` does not count.
    """
    back = []
    for folder, parts in sorted(folder_graphs(graph).items()):
        inside = {
            part: {target for target in targets if target != "__init__.py"}
            for part, targets in parts.items()
            if part != "__init__.py"
        }
        for group in circles(inside):
            members = {part: inside[part] & set(group) for part in group}
            place = {part: number for number, part in enumerate(_order(members))}
            back += [
                (folder, part, target)
                for part in group
                for target in sorted(members[part])
                if place[target] < place[part]
            ]
    return back


def _order(members: Mapping[str, set[str]]) -> list[str]:
    """Order of parts, importers first, in which few arrows run back."""
    left = {part: set(targets) for part, targets in members.items()}
    first: list[str] = []
    last: list[str] = []
    while left:
        importers = {part: sum(part in targets for targets in left.values()) for part in left}
        sink = next((part for part in sorted(left) if not left[part]), None)
        source = next((part for part in sorted(left) if not importers[part]), None)
        if sink is not None:
            last.append(sink)
            chosen = sink
        else:
            chosen = source or max(sorted(left), key=lambda part: len(left[part]) - importers[part])
            first.append(chosen)
        del left[chosen]
        for targets in left.values():
            targets.discard(chosen)
    return [*first, *reversed(last)]
