"""Extension of Sphinx: what the search needs to find tasks before designs.

The index of Sphinx knows which pages have a word, and not how often. For the pages which describe a
task, the file ``task_words.js`` has the number of each word (its stem), and ``scorer.js`` adds it.
"""

from __future__ import annotations

import collections
import json
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.search.en import SearchEnglish

#: Pages of tasks; the reference pages beside them are lists of everything.
_TASKS = re.compile(r"doc/manual/(?!reference-|tutorial-|errors$)")
# Name of a page -> stem -> number, of the present build.
_counts: dict[str, dict[str, int]] = {}
# A word which stands on a page once is not its subject.
_LEAST = 2


def _count(app: Sphinx, doctree: nodes.document) -> None:
    """Count the words of a page while it is read."""
    name = app.env.docname
    if not _TASKS.match(name):
        return
    language = SearchEnglish({})
    words = re.findall(r"[\w-]+", doctree.astext().lower())
    stems = collections.Counter(
        language.stem(part) for word in words for part in {word, *word.split("-")} if part
    )
    _counts[name] = {stem: count for stem, count in sorted(stems.items()) if count >= _LEAST}


def _load(app: Sphinx, pagename: str, *_rest: Any) -> None:
    if pagename == "search":
        app.add_js_file("task_words.js")


def _write(app: Sphinx, error: Exception | None) -> None:
    if error is None and app.builder.format == "html":
        text = json.dumps(_counts, separators=(",", ":"))
        (Path(app.outdir) / "_static/task_words.js").write_text(
            f"const taskWords = {text};\n", encoding="utf-8"
        )


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    app.connect("doctree-read", _count)
    app.connect("html-page-context", _load)
    app.connect("build-finished", _write)
    return {"parallel_read_safe": False, "parallel_write_safe": True}
