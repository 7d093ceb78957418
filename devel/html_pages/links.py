"""Extension of Sphinx: links and the tree of contents, from pages which docutils can read, too.

Three forms become links:

- a relative link such as ```Packages <packages.rst>`__``, to a page or to another file;
- the name of a man page, ``**gnt-node**\\ (8)``;
- the name of a page as a literal, ````start.rst```` or ````doc/start.rst````.

The tree of contents has the sections of ``doc/index.rst`` as parts, in the order of its links. A
relative link whose target does not exist is a warning, and ``make html`` fails with it.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform
from sphinx.util import logging

_log = logging.getLogger(__name__)

INDEX = "doc/index"
#: Title of a part, title of a section, names of its pages, from ``doc/index.rst`` of this build.
TREE: list[tuple[str, str, list[str]]] = []
_SUFFIX = re.compile(r"\.(rst|md)$")
# docutils keeps the backslash before the parenthesis as NUL.
_SECTION = re.compile(r"[\x00 ]*\(([1-9])\)")
_PAGE = re.compile(r"(?:doc/|man/)?[\w/-]+\.(?:rst|md)")


def page_of(target: str, found_docs: set[str], *folders: str) -> str | None:
    """Return the name of the page which a relative path means; None if there is no such page.

    :param folders: folders to which the path may be relative, the first one which fits is taken.
    """
    path = _SUFFIX.sub("", target)
    if path == target:
        return None
    for folder in folders:
        name = posixpath.normpath(posixpath.join(folder, path))
        if name in found_docs:
            return name
    return None


class Links(SphinxTransform):
    """Makes links of relative paths, names of man pages and names of pages."""

    default_priority = 400

    def apply(self, **kwargs: Any) -> None:
        """Change the present page."""
        folder = posixpath.dirname(self.env.docname)
        for reference in list(self.document.findall(nodes.reference)):
            self._relative(reference, folder)
        for strong in list(self.document.findall(nodes.strong)):
            self._man_page(strong)
        for literal in list(self.document.findall(nodes.literal)):
            self._literal(literal, folder)

    def _relative(self, reference: nodes.reference, folder: str) -> None:
        uri = reference.get("refuri", "")
        if not uri or re.match(r"[a-z]+:|#", uri):
            return
        path, _hash, anchor = uri.partition("#")
        name = page_of(path, self.env.found_docs, folder)
        inner = reference.children
        new: nodes.Element
        if name is not None and not anchor:
            new = self._link(name, inner)
        elif name is not None:
            new = nodes.reference(
                "", "", *inner, internal=True,
                refuri=self.app.builder.get_relative_uri(self.env.docname, name) + f"#{anchor}",
            )  # fmt: skip
        else:
            # A file of the source: Sphinx copies it, and warns when it is not there.
            new = addnodes.download_reference(
                "", "", *inner, refdoc=self.env.docname, reftype="download", refexplicit=True,
                refdomain="", refwarn=False, reftarget=path,
            )  # fmt: skip
        reference.replace_self(new)

    def _man_page(self, strong: nodes.strong) -> None:
        follower = strong.next_node(descend=False, siblings=True)
        if not isinstance(follower, nodes.Text) or not (found := _SECTION.match(follower)):
            return
        name = f"man/{strong.astext()}"
        if name not in self.env.found_docs or name == self.env.docname:
            return
        strong.parent.replace(follower, nodes.Text(follower[found.end() :]))
        strong.replace_self(
            self._link(name, [nodes.strong("", strong.astext()), nodes.Text(f"({found[1]})")])
        )

    def _literal(self, literal: nodes.literal, folder: str) -> None:
        if _PAGE.fullmatch(literal.astext()) and not isinstance(literal.parent, nodes.reference):
            name = page_of(literal.astext(), self.env.found_docs, folder, "doc", "")
            if name is not None and name != self.env.docname:
                literal.replace_self(self._link(name, [literal.deepcopy()]))

    def _link(self, name: str, inner: list[nodes.Node]) -> addnodes.pending_xref:
        return addnodes.pending_xref(
            "", nodes.inline("", "", *inner), refdoc=self.env.docname, refdomain="std",
            reftype="doc", refexplicit=True, refwarn=True, reftarget=f"/{name}",
        )  # fmt: skip


class Contents(SphinxTransform):
    """Gives ``doc/index.rst`` a tree of contents for each of its parts."""

    default_priority = 399

    def apply(self, **kwargs: Any) -> None:
        """Add the trees, which the page does not show itself, to the index page."""
        if self.env.docname != INDEX:
            return
        for part in self._parts():
            names = list(self._pages(part))
            if names:
                TREE.append((_title(part.parent), _title(part), names))
                part += addnodes.toctree(
                    "", entries=[(None, name) for name in names], includefiles=names,
                    parent=INDEX, maxdepth=1, hidden=True, glob=False, caption=part[0].astext(),
                    rawcaption=part[0].astext(), includehidden=False, numbered=0, titlesonly=True,
                )  # fmt: skip

    def _parts(self) -> Iterator[nodes.section]:
        """Yield the sections which have links of their own."""
        for section in self.document.findall(nodes.section):
            if any(isinstance(child, nodes.bullet_list) for child in section.children):
                yield section

    def _pages(self, section: nodes.section) -> Iterator[str]:
        for part in section.children:
            if isinstance(part, nodes.bullet_list):
                for reference in part.findall(nodes.reference):
                    name = page_of(reference.get("refuri", ""), self.env.found_docs, "doc")
                    if name is not None:
                        yield name


def _title(section: nodes.Node) -> str:
    """Return the heading of a section; empty for the whole page."""
    return section[0].astext() if isinstance(section, nodes.section) else ""


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the two transforms with Sphinx."""
    app.add_transform(Contents)
    app.add_transform(Links)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
