"""Random credentials, over a real socket: each is refused in a described way, and shown nowhere."""

from __future__ import annotations

import base64
import itertools
import logging
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fakes.access_master import AccessMaster
from fakes.http_lab import HttpLab, receive_answer
from ganeti.rapi.application import RestApplication
from ganeti.rapi.challenge import SESSION_COOKIE
from ganeti.rapi.kept_records import KeptRecords
from ganeti.rapi.proofs import Proofs
from ganeti.rapi.sessions import Sessions
from ganeti.rapi.users import Users
from ganeti.server import rapi as daemon

#: A right is needed.
_PATH = "/2/jobs/1/wait?fields=status"
_SECRET = "k3pt-secret"
# What may stand in a header, as HTTP has it.
_FIELD = st.text(
    st.characters(min_codepoint=0x20, max_codepoint=0xFF, exclude_characters="\x7f"), max_size=60
)
_NAMES = st.one_of(st.sampled_from(["root", "look", "", "root\0", "ro\xf6t", "root "]), _FIELD)
_PAIRS = st.builds(
    lambda name, colon, password: f"{name}{colon}{password}",
    _NAMES,
    st.sampled_from([":", "", "::", "\n"]),
    st.one_of(st.just(_SECRET.upper()), st.text(max_size=40)),
)
_ENCODED = st.builds(
    lambda text, cut: base64.b64encode(text.encode("utf-8", "surrogatepass")).decode()[cut:],
    _PAIRS,
    st.integers(0, 2),
)
_AUTHORIZATIONS = st.builds(
    lambda scheme, space, value: f"{scheme}{space}{value}",
    st.sampled_from(["Basic", "basic", "Bearer", "BEARER", "Digest", "Negotiate", "", "x"]),
    st.sampled_from([" ", "", "  ", "\t"]),
    st.one_of(_ENCODED, _FIELD, st.sampled_from(["gnt_" + "A" * 43, "gnt_", "gnt_" + "=" * 43])),
)
_COOKIES = st.builds(
    lambda name, sign, value, more: f"{name}{sign}{value}{more}",
    st.sampled_from([SESSION_COOKIE, SESSION_COOKIE.lower(), "a", ""]),
    st.sampled_from(["=", "", "==", " = "]),
    st.one_of(_FIELD, st.sampled_from(['"', "_" * 43, "0" * 43, "A" * 4000])),
    st.sampled_from(["", ";", f"; {SESSION_COOKIE}=x", "; $Version=1"]),
)
_HEADERS = st.lists(
    st.one_of(
        st.tuples(st.just("Authorization"), _AUTHORIZATIONS),
        st.tuples(st.just("Cookie"), _COOKIES),
    ),
    min_size=1,
    max_size=3,
)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpLab]:
    file = tmp_path_factory.mktemp("rapi") / "users"
    file.write_text(f"root {_SECRET} write\nlook {_SECRET} read\n")
    # An hour between two requests, so that none waits for the guesses before.
    hours = itertools.count(0, 3600)

    def make() -> RestApplication:
        master = AccessMaster()
        master.answers["WaitForJobChange"] = "nochange"
        users = Users(str(file), clock=lambda: float(next(hours)))
        # The ways of the daemon, in their order.
        records = KeptRecords(master)
        ways = daemon._identities(Proofs(records, users, Sessions(records, users)), users)
        return RestApplication(master, ways)

    found = HttpLab(make)
    yield found
    found.close()


def ask(lab: HttpLab, headers: list[tuple[str, str]]) -> tuple[int, dict[str, str], bytes]:
    lines = [f"GET {_PATH} HTTP/1.1", "Host: h", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in headers]
    with lab.connect() as sock:
        sock.sendall(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
        status, found, body = receive_answer(sock)
    return status, found, body


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(headers=_HEADERS)
def test_each_is_refused(
    lab: HttpLab, caplog: pytest.LogCaptureFixture, headers: list[tuple[str, str]]
) -> None:
    caplog.clear()
    with caplog.at_level(logging.DEBUG):
        status, found, body = ask(lab, headers)
    assert status in (400, 401, 429), (status, body)
    # A line of a log has the name of a user, and not what proves who he is.
    words = [value.split()[-1] for _name, value in headers if value.split()]
    for record in caplog.records:
        assert record.levelno < logging.ERROR, record.getMessage()
        assert not any(word in record.getMessage() for word in words if len(word) > 8)
    if status == 401 and not any(name == "Cookie" for name, _ in headers):
        assert found["www-authenticate"].startswith(("Basic ", "Bearer "))


def test_right_ones_are_accepted_afterwards(lab: HttpLab) -> None:
    right = "Basic " + base64.b64encode(f"root:{_SECRET}".encode()).decode()
    assert ask(lab, [("Authorization", right)])[0] == 200
