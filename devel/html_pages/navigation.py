"""Extension of Sphinx: the navigation on the left, in three levels.

The levels are the parts of ``doc/index.rst``, their sections, and the pages of a section. A reader
sees the sections of the part which has the present page, and the pages of the section; the others
are closed. The template is ``templates/sidebar/parts.html``.
"""

from __future__ import annotations

from typing import Any

from sphinx.application import Sphinx

from devel.html_pages import links


def _add_parts(
    app: Sphinx, pagename: str, _template: str, context: dict[str, Any], _doctree: object
) -> None:
    """Give the template the parts: title, whether it has the present page, and sections alike."""
    parts: list[dict[str, Any]] = []
    for part, section, names in links.TREE:
        if not parts or parts[-1]["title"] != part:
            parts.append({"title": part, "here": False, "sections": []})
        pages = [
            {
                "title": app.env.titles[name].astext(),
                "uri": app.builder.get_relative_uri(pagename, name),
                "here": name == pagename,
            }
            for name in names
        ]
        here = pagename in names
        parts[-1]["sections"].append({"title": section, "here": here, "pages": pages})
        parts[-1]["here"] |= here
    if not any(part["here"] for part in parts):
        # The first page, the search and the pages outside of the index.
        parts[0]["here"] = True
        for section in parts[0]["sections"][:2]:
            section["here"] = True
    context["parts"] = parts


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    app.connect("html-page-context", _add_parts)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
