"""The file with the news begins with the present release, and names the version of Ganeti."""

from __future__ import annotations

import re
from pathlib import Path

import ganeti

TOP = Path(__file__).resolve().parents[2]
NEWS = (TOP / "NEWS.md").read_text(encoding="utf-8")


def test_the_newest_release_is_the_present_one() -> None:
    releases = re.findall(r"^## ([\d.]+)$", NEWS, re.MULTILINE)
    assert releases[0] == ganeti.RELEASE
    as_numbers = [tuple(map(int, release.split("."))) for release in releases]
    assert as_numbers == sorted(set(as_numbers), reverse=True)


def test_the_readme_names_both_versions() -> None:
    text = " ".join((TOP / "README.md").read_text(encoding="utf-8").split())
    assert f"the release of this project, {ganeti.RELEASE} (" in text
    assert f"is compatible, {ganeti.__version__}, which programs read" in text


def test_the_versions_agree() -> None:
    assert ganeti.__version__ == ".".join(map(str, ganeti.VERSION))
    assert ganeti.__version__ in ganeti.FULL_VERSION and ganeti.RELEASE in ganeti.FULL_VERSION


def test_how_a_release_is_made_is_described_with_its_tag() -> None:
    text = (TOP / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert f'git tag -a v{ganeti.RELEASE} -m "Release {ganeti.RELEASE}"' in text


def test_the_newest_release_names_the_version_of_ganeti() -> None:
    newest = NEWS.split("\n## ")[1]
    assert f"Ganeti {ganeti.__version__}" in newest
