"""``make html`` works without warnings, and every link of its pages has its target."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import urllib.parse
from html.parser import HTMLParser
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]


class Page(HTMLParser):
    """The links of a page, and the places to which links can lead."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.places: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.links.append(value)
            elif name in ("id", "name") and value:
                self.places.add(value)


def broken(directory: Path) -> list[str]:
    """``page: link`` for each link without target; links to other machines are not followed."""
    pages = {path.resolve(): Page(path) for path in directory.rglob("*.html")}
    found = []
    for path, page in pages.items():
        for link in page.links:
            url = urllib.parse.urlsplit(link)
            if url.scheme or url.netloc:
                continue
            target = (path.parent / urllib.parse.unquote(url.path)).resolve() if url.path else path
            place = urllib.parse.unquote(url.fragment)
            if not target.exists() or (place and place not in pages[target].places):
                found.append(f"{path.relative_to(directory.resolve())}: {link}")
    return found


@pytest.fixture(scope="module")
def html(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("html") / "pages"
    done = subprocess.run(
        [sys.executable, "-m", "devel.html_pages", str(directory)],
        cwd=TOP,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return directory


def test_every_page_is_there(html: Path) -> None:
    sources = [*(TOP / "doc").glob("*.rst"), *(TOP / "doc/manual").glob("*.rst"),
               *(TOP / "man").glob("*.rst")]  # fmt: skip
    made = {str(path.relative_to(html)) for path in html.rglob("*.html")}
    wanted = {str(path.relative_to(TOP).with_suffix(".html")) for path in sources}
    assert wanted | {"index.html", "search.html"} <= made


def test_every_link_has_its_target(html: Path) -> None:
    assert broken(html) == []


def test_pages_are_linked_from_texts(html: Path) -> None:
    """Names of man pages and of pages in literals become links."""
    page = (html / "man/gnt-node.html").read_text(encoding="utf-8")
    assert 'href="gnt-cluster.html"' in page.partition('id="see-also"')[2]
    page = (html / "doc/architecture.html").read_text(encoding="utf-8")
    assert 'href="glossary.html"' in page


def test_the_contents_have_the_parts_of_the_index(html: Path) -> None:
    page = (html / "doc/manual/add-node.html").read_text(encoding="utf-8")
    assert page.index(">Tutorials<") < page.index(">Tasks<") < page.index(">Start here<")


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text('<a href="b.html#here">x</a> <a href="#no">y</a>')
    (tmp_path / "b.html").write_text('<p id="here"><a href="a.html"><a href="c.html">')
    assert sorted(broken(tmp_path)) == ["a.html: #no", "b.html: c.html"]


def test_the_navigation_has_three_levels_and_shows_the_present_section(html: Path) -> None:
    page = (html / "doc/manual/move-instance.html").read_text(encoding="utf-8")
    navigation = page.partition('<nav class="parts"')[2].partition("</nav>")[0]
    parts = re.split(r"\n(?=<details)", navigation)
    opened = [part for part in parts if part.startswith("<details open")]
    assert [re.findall("<summary>(.*?)</summary>", part) for part in opened] == [
        ["Manual"],
        ["Tasks"],
    ]
    assert 'aria-current="page">Move an instance</a>' in opened[1]
    # What is open at first: at most a screen of links.
    assert opened[1].count("<a ") < 20
    assert navigation.count("<a ") > 100


def test_a_long_page_has_its_contents(html: Path) -> None:
    page = (html / "man/gnt-instance.html").read_text(encoding="utf-8")
    contents = page.partition('class="toc-tree"')[2].partition("</aside>")[0]
    assert contents.count("<a ") > 20
    assert 'href="#migrate"' in contents


@pytest.mark.skipif(shutil.which("dot") is None, reason="needs the package graphviz")
def test_every_drawing_is_on_a_page(html: Path) -> None:
    sources = sorted((TOP / "doc/drawings").glob("*.dot"))
    assert len(sources) >= 5
    drawings = 0
    for path in (html / "doc/manual").glob("*.html"):
        text = path.read_text(encoding="utf-8")
        assert ".dot" not in text
        for part in text.split('<div class="drawing" role="img" aria-label="')[1:]:
            drawings += 1
            assert part.partition('"')[0]
            assert part.partition('">')[2].startswith("<svg")
    assert drawings == len(sources)


SEARCHES = {
    "migrate": "doc/manual/move-instance.html",
    "backup": "doc/manual/back-up-configuration.html",
    "add node": "doc/manual/add-node.html",
    "certificate": "doc/manual/expired-certificates.html",
    "broken disk": "doc/manual/replace-disk.html",
    "image": "doc/manual/images.html",
    "evacuate": "doc/manual/lose-node.html",
    "upgrade": "doc/manual/upgrade.html",
}


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs the package chromium")
@pytest.mark.parametrize("words", SEARCHES)
def test_the_search_finds_the_task_first(html: Path, tmp_path: Path, words: str) -> None:
    address = f"file://{html}/search.html?q={urllib.parse.quote_plus(words)}"
    done = subprocess.run(
        ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}",
         "--virtual-time-budget=20000", "--dump-dom", address],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    results = done.stdout.partition('id="search-results"')[2]
    found = re.findall(r'<li[^>]*><a href="([^"]*)"', results)
    assert found[0].partition("?")[0] == SEARCHES[words], found[:5]


def test_words_of_tasks_are_counted(html: Path) -> None:
    text = (html / "_static/task_words.js").read_text(encoding="utf-8")
    counts = json.loads(text.partition("=")[2].rstrip().rstrip(";"))
    assert counts["doc/manual/move-instance"]["migrat"] >= 5
    assert not any("reference" in page or "tutorial" in page for page in counts)


def test_the_recording_of_the_demonstration_is_on_a_page(html: Path) -> None:
    page = (html / "doc/manual/tutorial-laptop.html").read_text(encoding="utf-8")
    picture = page.partition('<svg class="recording"')[2].partition("</svg>")[0]
    assert "migrate" in picture
    assert ".cast" not in page
