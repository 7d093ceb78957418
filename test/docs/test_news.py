"""The file with the news begins with the present release, and names the version of Ganeti."""

from __future__ import annotations

import re
from pathlib import Path

import ganeti

NEWS = (Path(__file__).resolve().parents[2] / "NEWS.md").read_text(encoding="utf-8")


def test_the_newest_release_is_the_present_one() -> None:
    releases = re.findall(r"^## ([\d.]+)$", NEWS, re.MULTILINE)
    assert releases[0] == ganeti.RELEASE
    as_numbers = [tuple(map(int, release.split("."))) for release in releases]
    assert as_numbers == sorted(set(as_numbers), reverse=True)


def test_the_newest_release_names_the_version_of_ganeti() -> None:
    newest = NEWS.split("\n## ")[1]
    assert f"Ganeti {ganeti.__version__}" in newest
