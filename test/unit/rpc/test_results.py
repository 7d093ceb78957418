"""Five kinds of answers, never mixed."""

import pytest

from ganeti import RELEASE, errors
from ganeti.http import client
from ganeti.rpc import results
from ganeti.wire import calls


def sort(outcome, call=calls.VERSION):
    return results.from_outcome(call, "node1", outcome)


def test_data():
    result = sort(client.Reply(200, b"[true, 17]", ""))
    assert (result.data, result.failure, result.payload(), result.offline) == (17, None, 17, False)


@pytest.mark.parametrize(
    ("kind", "cls"),
    [
        (client.UNREACHABLE, errors.NodeUnreachable),
        (client.REFUSED, errors.NodeRefused),
        (client.FAILED, errors.NodeCallFailed),
    ],
)
def test_transport_failures(kind, cls):
    result = sort(client.Failure(kind, "why"))
    assert type(result.failure) is cls
    assert (result.failure.node, result.failure.call) == ("node1", "version")
    with pytest.raises(cls, match="why"):
        result.payload()


@pytest.mark.parametrize(
    ("status", "cls"),
    [
        (403, errors.NodeRefused),
        (401, errors.NodeRefused),
        (404, errors.NodeLacksCall),
        (400, errors.NodeCallFailed),
        (413, errors.NodeCallFailed),
        (500, errors.NodeCallFailed),
        (302, errors.NodeCallFailed),
    ],
)
def test_http_errors(status, cls):
    assert type(sort(client.Reply(status, b"a text", "")).failure) is cls
    assert str(status) in str(sort(client.Reply(status, b"", "")).failure)


def test_page_of_something_else_is_shortened():
    failure = sort(client.Reply(500, b"<html>" * 10000, "")).failure
    assert len(failure.message) < 1000


def test_plain_failure_is_a_text():
    failure = sort(client.Reply(200, b'[false, "disk is full"]', "")).failure
    assert type(failure) is errors.NodeCallFailed
    assert failure.message == "disk is full"
    assert failure.cause is None


def test_cause_is_rebuilt():
    header = '["HypervisorError",["no such machine"]]'
    failure = sort(client.Reply(200, b'[false, "no such machine"]', header)).failure
    assert type(failure.cause) is errors.HypervisorError


@pytest.mark.parametrize("header", ["nonsense", "[]", '["NoSuchError",["x"]]', '["os.system"]'])
def test_unknown_cause_leaves_the_text(header):
    failure = sort(client.Reply(200, b'[false, "text"]', header)).failure
    assert (failure.message, failure.cause) == ("text", None)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"nonsense",
        b"{}",
        b"[]",
        b"[true]",
        b'["true", 1]',
        b"[1, 2]",
        b'[true, "x"]',
        b"\xff\xfe",
        b"[" * 100000,
    ],
)
def test_nonsense_is_a_failure(body):
    failure = sort(client.Reply(200, body, "")).failure
    assert type(failure) is errors.NodeCallFailed
    assert "cannot be decoded" in failure.message


def test_an_answer_of_too_many_values_is_not_read(monkeypatch):
    monkeypatch.setattr(results.json, "MAX_ITEMS", 1000)
    failure = sort(client.Reply(200, b"[true, [" + b"[]," * 1000 + b"1]]", "")).failure
    assert type(failure) is errors.NodeCallFailed
    assert "more than 1000 values" in failure.message


STATUS = b'[true, {"status": "active", "color": "red"}]'


def test_unknown_fields_of_a_node_of_another_release():
    """They are an error of a node of this release only."""
    call = calls.INSTANCE_GET_MIGRATION_STATUS
    assert "color: unknown key" in str(sort(client.Reply(200, STATUS, ""), call).failure)
    result = sort(client.Reply(200, STATUS, "", release="9.9.0"), call)
    assert (result.payload().status, result.release) == ("active", "9.9.0")


def test_an_answer_which_cannot_be_decoded_names_both_releases():
    failure = sort(client.Reply(200, b'[true, "x"]', "", release="9.9.0")).failure
    assert f"the node has release 9.9.0, the caller {RELEASE}" in str(failure)


def several(body, count=3, failure=None):
    call = calls.BLOCKDEV_REMOVE_MULTI
    result = sort(failure or client.Reply(200, body, ""), call)
    return results.each(call, result, count)


def test_one_of_several_which_failed_does_not_hide_the_others():
    first, second, third = several(
        b'[true, [[true, null], [false, "busy", ["DeviceCreationError", ["busy", ["lv"]]]],'
        b' [false, "odd", ["NoSuchClass", []]]]]'
    )
    assert first.failure is None and first.data is None
    assert isinstance(second.failure, errors.NodeCallFailed)
    assert second.failure.message == "busy"
    assert isinstance(second.failure.cause, errors.DeviceCreationError)
    assert second.failure.cause.created_devices == ["lv"]
    assert isinstance(third.failure, errors.NodeCallFailed) and third.failure.cause is None


def test_a_call_which_failed_has_failed_for_each():
    found = several(b"", failure=client.Failure(client.UNREACHABLE, "gone"))
    assert [type(one.failure) for one in found] == [errors.NodeUnreachable] * 3


@pytest.mark.parametrize("body", [b"[true, []]", b"[true, [[true, null]]]", b"[true, [[1, 2]]]"])
def test_a_node_which_does_not_answer_for_each_has_failed(body):
    assert [type(one.failure) for one in several(body)] == [errors.NodeCallFailed] * 3
