"""A browser must not send requests for a page of another site with a remembered password."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.rest_client import Rest, rest_lab

REINSTALL = "/2/instances/web/reinstall"
FORM = "application/x-www-form-urlencoded"


@pytest.fixture
def rest(tmp_path: Path) -> Iterator[Rest]:
    with rest_lab(tmp_path) as one:
        yield one


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
@pytest.mark.parametrize(
    ("status", "headers"),
    [
        # A form, in a current browser, in an older one, and in one without any of these headers.
        (
            403,
            {
                "sec_fetch_site": "cross-site",
                "origin": "https://evil.example",
                "content_type": FORM,
            },
        ),
        (403, {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate"}),
        (403, {"origin": "https://evil.example", "content_type": FORM}),
        (415, {"content_type": FORM}),
        (415, {"content_type": "multipart/form-data; boundary=x"}),
        (415, {"content_type": "Text/Plain;charset=utf-8"}),
        # A script, which needs no content type.
        (403, {"sec_fetch_site": "cross-site", "sec_fetch_mode": "no-cors"}),
        (403, {"sec_fetch_site": "same-site"}),
        (403, {"origin": "null"}),
        (403, {"origin": "https://h:5081"}),
        (403, {"origin": "https://h.evil.example"}),
        (403, {"origin": "https://["}),
        (403, {"origin": "file://h"}),
    ],
)
def test_pages_of_other_sites(
    rest: Rest, method: str, status: int, headers: dict[str, str]
) -> None:
    path = REINSTALL if method == "POST" else "/2/tags?tag=x"
    assert rest(method, path, **headers)[0] == status
    assert not rest.master.asked


@pytest.mark.parametrize(
    "headers",
    [
        {},  # curl -X POST
        {"content_type": "application/json"},  # the client for Python, without a body
        {"sec_fetch_site": "same-origin", "origin": "https://front.example"},  # behind a proxy
        {"sec_fetch_site": "none"},
        {"origin": "https://h"},
        {"origin": "https://H:443"},
    ],
)
def test_programs_and_own_pages(rest: Rest, headers: dict[str, str]) -> None:
    assert rest("POST", REINSTALL, **headers)[:2] == (200, 12)


@pytest.mark.parametrize(
    ("path", "mode", "status"),
    [
        ("/2/doc", "navigate", 200),
        ("/2/doc", "no-cors", 403),
        # This one submits a job.
        ("/2/instances/web/info", "navigate", 403),
    ],
)
def test_links_of_other_pages(rest: Rest, path: str, mode: str, status: int) -> None:
    headers: dict[str, Any] = {"sec_fetch_site": "cross-site", "sec_fetch_mode": mode}
    assert rest("GET", path, **headers)[0] == status
    assert not rest.master.asked
