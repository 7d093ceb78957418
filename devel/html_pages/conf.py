"""Settings of Sphinx for ``make html``: HTML pages and man pages have one source.

The pages are plain reStructuredText, which docutils alone can read, too: ``devel/build-man`` makes
the man pages from the same files. :mod:`devel.html_pages.links` makes links of the names of pages
in the text, and the tree of contents from ``doc/index.rst``.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP))

project = "Ganeti in Python"
author = "The engineers of Ganeti in Python"
_found = re.search(r'RELEASE = "([^"]+)"', (TOP / "lib/ganeti/__init__.py").read_text())
release = version = _found[1] if _found else ""
# The name of the page, not of the author, stands on each page.
html_show_copyright = False

extensions = [
    "myst_parser",
    "devel.html_pages.drawings",
    "devel.html_pages.links",
    "devel.html_pages.navigation",
    "devel.html_pages.recordings",
    "devel.html_pages.task_words",
]
include_patterns = [
    "doc/*.rst",
    "doc/checklists/*.rst",
    "doc/manual/*.rst",
    "doc/examples/*/README.rst",
    "man/*.rst",
    "README.md",
    "CONTRIBUTING.md",
    "NEWS.md",
]
# Without these, Sphinx walks through the virtual environment and everything that was built.
exclude_patterns = [
    ".*",
    "build",
    "lib",
    "test",
    "devel",
    "packaging",
    "daemons",
    "scripts",
    "tools",
]
root_doc = "doc/index"
source_suffix = {".rst": "restructuredtext", ".md": "markdown"}
# doc/index.rst names the pages in lists with a sentence for each; there is no directive toctree.
suppress_warnings = ["toc.not_included"]
highlight_language = "none"
smartquotes = False
nitpicky = True
# Sections of Markdown pages get anchors as on other pages.
myst_heading_anchors = 3

html_theme = "furo"
html_title = f"{project} {release}"
html_theme_options = {"navigation_with_keys": True}
# Of the parts, sections and pages of doc/index.rst; devel/html_pages/navigation.py provides them.
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/parts.html",
        "sidebar/scroll-end.html",
    ]
}
templates_path = ["templates"]
html_static_path = ["static"]
html_css_files = ["pages.css"]
html_search_scorer = str(Path(__file__).parent / "scorer.js")
html_copy_source = False
html_use_index = False
html_show_sourcelink = False
