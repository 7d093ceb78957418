"""Lines of the access log."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import pytest

from ganeti import errors
from ganeti.http.access_log import AccessLog, format_line
from ganeti.http.event_server import Exchange

COMMON = Exchange("192.0.2.1", "jack", "GET /2/info HTTP/1.1", 200, 12, "-", "curl/8", 0.1)


def test_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    assert format_line(COMMON, 951786000.0) == (
        '192.0.2.1 - jack [29/Feb/2000:01:00:00 +0000] "GET /2/info HTTP/1.1" 200 12 "-" "curl/8"\n'
    )


def test_nobody_writes_in_anothers_name() -> None:
    line = format_line(
        COMMON._replace(
            line='GET /"x HTTP/1.1\n', agent="a\\\x1b[0m\r\n1.2.3.4 -", user="a b", sent=0
        ),
        0.0,
    )
    assert line.count("\n") == 1 and line.endswith("\n") and "\x1b" not in line
    assert re.fullmatch(
        r'\S+ - \S+ \[[^]]+\] "(\\.|[^"\\])*" \d+ (\d+|-) "(\\.|[^"\\])*"'
        r' "(\\.|[^"\\])*"\n',
        line,
    )


def test_the_code_of_a_login_is_left_out() -> None:
    path = "/2/login/oidc/callback"
    exchange = COMMON._replace(
        line=f"GET {path}?code=geheim&iss=https%3A%2F%2Fid&state=7.geheim HTTP/1.1",
        referer=f"https://c{path}?state=geheim&code=geheim",
    )
    line = format_line(exchange, 0.0)
    assert "geheim" not in line
    assert f'"GET {path}?code=...&iss=https%3A%2F%2Fid&state=... HTTP/1.1"' in line
    other = "GET /2/jobs?filter=status&decode=1 HTTP/1.1"
    assert other in format_line(COMMON._replace(line=other), 0.0)


def test_the_file(tmp_path: Path) -> None:
    path = tmp_path / "access.log"
    log = AccessLog(str(path))
    log.write(COMMON)
    assert path.stat().st_mode & 0o777 == 0o600
    os.rename(path, tmp_path / "old")
    log.write(COMMON)
    log.reopen()
    log.write(COMMON)
    assert len(path.read_text().splitlines()) == 1
    assert len((tmp_path / "old").read_text().splitlines()) == 2
    log.close()
    with pytest.raises(errors.ConfigurationError):
        AccessLog(str(tmp_path / "no" / "such"))


def test_a_full_disk(caplog: pytest.LogCaptureFixture) -> None:
    log = AccessLog("/dev/full")
    for _ in range(3):
        log.write(COMMON)
    assert len(caplog.records) == 1
    log.close()
