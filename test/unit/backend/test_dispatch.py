"""From a request to an answer."""

import signal

import pytest

from ganeti import errors
from ganeti.backend import dispatch
from ganeti.http import ERROR_HEADER
from ganeti.http.server import AuthorisedRequest
from ganeti.wire import errors as wire_errors
from ganeti.wire import json


@pytest.fixture(autouse=True)
def no_alarm_left():
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)


def ask(handler, body=b"[1]", procedure="test_delay"):
    request = AuthorisedRequest(procedure, body, "127.0.0.1", "AA", {}, False)
    return dispatch.Dispatcher({"test_delay": handler})(request)


def fail(error):
    def handler(duration_s):
        raise error

    return handler


def test_answer():
    response = ask(lambda duration_s: None)
    assert (response.status, response.body) == (200, b"[true,null]")


@pytest.mark.parametrize("procedure", ["", "version", "no_such", "../x", "x" * 5000])
def test_unknown_procedure(procedure):
    response = ask(lambda duration_s: None, procedure=procedure)
    assert response.status == 404
    assert len(response.body) < 200


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"[1,2]", b'["x"]', b"\xff", b"[" * 99999])
def test_bad_body(body):
    response = ask(lambda duration_s: pytest.fail("called"), body)
    assert response.status == 400
    assert response.body


@pytest.mark.parametrize(
    "error",
    [
        errors.HypervisorError("no such machine"),
        errors.OpPrereqError("bad", errors.ECODE_STATE),
        errors.CommandError(["x"], 1, "output"),
        FileNotFoundError(2, "No such file", "/x"),
    ],
)
def test_error_is_a_text_and_a_header(error):
    response = ask(fail(error))
    assert response.status == 200
    assert json.loads(response.body) == [False, str(error)]
    assert json.loads(response.headers[ERROR_HEADER]) == wire_errors.encode(error)


def test_header_is_one_line_of_ascii():
    response = ask(fail(errors.GenericError("two\r\nlines, ümlaut")))
    value = response.headers[ERROR_HEADER]
    assert value.isascii()
    assert value.isprintable()


def test_long_error_keeps_its_text():
    response = ask(fail(errors.GenericError("x" * 100_000)))
    assert ERROR_HEADER not in response.headers
    assert len(response.body) > 100_000


def test_unexpected_error_names_its_class(caplog):
    response = ask(fail(KeyError("uuid")))
    assert json.loads(response.body) == [False, "KeyError: 'uuid'"]
    assert "Traceback" in caplog.text


def test_broken_promise_of_a_handler():
    ok, text = json.loads(ask(lambda duration_s: "text").body)
    assert not ok
    assert "handler returned 'text'" in text


def test_quit():
    response = ask(fail(errors.QuitGanetiException(True, "bye")))
    assert (response.status, response.quit) == (200, True)
    assert json.loads(response.body) == [True, "bye"]


def test_hanging_handler_has_an_alarm():
    left = []
    ask(lambda duration_s: left.append(signal.getitimer(signal.ITIMER_REAL)[0]))
    # (1 + 5) s of the call, twice, and a minute.
    assert 60 < left[0] <= 72
