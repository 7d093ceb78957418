"""The rules of webhooks, signatures, and addresses which are refused."""

from __future__ import annotations

import base64
import hashlib
import hmac
import ipaddress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti import errors
from ganeti.constants.events import KINDS, NOISY
from ganeti.rapi.events import Event
from ganeti.rapi.webhooks import addresses, rules
from ganeti.rapi.webhooks.message import Message, headers, signature
from ganeti.wire import json

URL = "https://receiver.example.com/hooks/very-secret"


def rule(**given: Any) -> rules.Rule:
    return rules.make("chat", URL, given, owner="root", made=1.5)


def test_a_rule_is_its_record() -> None:
    one = rule(kind=["job"], match=["web*"], tag=["prod"], severity="error")
    assert rules.of_record(one.record()) == one
    assert rule().secret != rule().secret


def test_users_see_neither_secret_nor_path() -> None:
    one = rule()
    shown = json.dumps(one.shown())
    assert "https://receiver.example.com" in shown
    assert "very-secret" not in shown and one.secret not in shown


def test_the_usual_kinds_are_not_noisy() -> None:
    assert set(rule().kinds) == set(KINDS) - NOISY
    assert set(rule(kind=["*"]).kinds) == set(KINDS)


@pytest.mark.parametrize(
    ("name", "url", "given", "word"),
    [
        ("a b", URL, {}, "name"),
        ("x" * 65, URL, {}, "name"),
        ("chat", "http://receiver.example.com/very-secret", {}, "https"),
        ("chat", "https://user:word@receiver.example.com/", {}, "user"),
        ("chat", "https://receiver.example.com/" + "x" * 1000, {}, "URL"),
        ("chat", URL, {"severity": "bad"}, "severity"),
        ("chat", URL, {"kind": ["jobs"]}, "'jobs'"),
        ("chat", URL, {"match": [""]}, "'match'"),
        ("chat", URL, {"tag": [str(number) for number in range(21)]}, "'tag'"),
    ],
)
def test_wrong_rules(name: str, url: str, given: dict[str, Any], word: str) -> None:
    with pytest.raises(errors.ParameterError) as caught:
        rules.make(name, url, given, owner="root", made=0.0)
    assert word in str(caught.value)
    assert "very-secret" not in str(caught.value)


@pytest.mark.parametrize("secret", ["whsec_", "whsec_!", "whsec_YWJj", "abc"])
def test_wrong_secrets(secret: str) -> None:
    with pytest.raises(errors.ParameterError):
        rules.make("chat", URL, {}, owner="root", made=0.0, secret=secret)


@pytest.mark.parametrize("data", [{}, {"url": 1}, {"url": URL, "secret": None}])
def test_a_damaged_record_is_refused(data: dict[str, Any]) -> None:
    with pytest.raises(errors.ParameterError):
        rules.of_record({**rule().record(), "data": data})


JOB = {"id": 1, "status": "success"}
NODE = {"name": "node1", "change": "changed", "offline": True, "drained": False}


@pytest.mark.parametrize(
    ("kind", "data", "about", "severity"),
    [
        ("job", JOB, {}, "info"),
        ("job", {**JOB, "status": "error"}, {}, "error"),
        ("job", {**JOB, "status": "canceled"}, {}, "warning"),
        ("finding", {"severity": "error", "change": "gone"}, {}, "error"),
        ("finding", {"severity": "warning", "change": "appeared"}, {}, "warning"),
        ("instance", {"change": "state", "status": "ERROR_down"}, {}, "error"),
        ("instance", {"change": "state", "status": "USER_down"}, {}, "warning"),
        ("instance", {"change": "state", "status": "running"}, {}, "info"),
        ("instance", {"change": "added"}, {}, "info"),
        ("node", NODE, {"members": ["offline"]}, "warning"),
        ("node", NODE, {"members": ["tags"]}, "info"),
        ("cluster", {"change": "changed"}, {}, "info"),
    ],
)
def test_severities(kind: str, data: dict[str, Any], about: dict[str, Any], severity: str) -> None:
    assert rules.severity_of(Event(1, kind, data, about)) == severity


@pytest.mark.parametrize("kind", KINDS)
def test_an_event_of_another_version_has_a_severity(kind: str) -> None:
    """It may lack every member."""
    assert rules.severity_of(Event(1, kind, {}, {})) in (rules.INFO, rules.WARNING)
    assert rules.severity_of(Event(1, kind, {"status": ["x"]}, {})) in (rules.INFO, rules.WARNING)


def test_what_a_rule_chooses() -> None:
    wanted = rule(kind=["job"], match=["web*"], tag=["prod"], severity="error").filter()
    about = {"objects": [["instance", "web1.example.com"]], "tags": ["prod", "other"]}
    data = {"id": 1, "status": "error"}
    assert wanted.passes(Event(1, "job", data, about))
    assert not wanted.passes(Event(1, "job", {**data, "status": "success"}, about))
    assert not wanted.passes(Event(1, "job", data, {**about, "tags": ["test"]}))
    assert not wanted.passes(Event(1, "job", data, {**about, "objects": [["instance", "db1"]]}))
    assert not wanted.passes(Event(1, "node", NODE, about))


def test_the_signature_of_the_specification() -> None:
    # The example of the specification.
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    body = b'{"test": 2432232314}'
    assert (
        signature(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body)
        == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    )


def test_what_is_sent() -> None:
    message = Message("evt_e-1", "job", {"id": 1}, "info", 1_700_000_000.25)
    body = message.body("c.example.com")
    assert json.loads(body) == {
        "type": "job",
        "timestamp": "2023-11-14T22:13:20.250Z",
        "cluster": "c.example.com",
        "severity": "info",
        "data": {"id": 1},
    }
    secret = rules.new_secret()
    sent = dict(headers(secret, message.id, 1_700_000_001.9, body))
    assert sent["webhook-id"] == "evt_e-1"
    assert sent["webhook-timestamp"] == "1700000001"
    key = base64.b64decode(secret.removeprefix("whsec_"))
    mac = hmac.new(key, b"evt_e-1.1700000001." + body, hashlib.sha256).digest()
    assert sent["webhook-signature"] == f"v1,{base64.b64encode(mac).decode()}"


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "127.255.0.3",
        "::1",
        "0.0.0.0",
        "0.1.2.3",
        "::",
        "169.254.169.254",
        "fe80::1%eth0",
        "fe80::1",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "::127.0.0.1",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
        "fd00:ec2::254",
        "100.100.100.200",
        "168.63.129.16",
        "224.0.0.1",
        "ff02::1",
        "255.255.255.255",
        "240.0.0.1",
        "localhost",
        "",
    ],
)
def test_refused_addresses(address: str) -> None:
    assert not addresses.allowed(address)


@pytest.mark.parametrize(
    "address",
    ["192.0.2.1", "10.0.0.1", "192.168.1.1", "2001:db8::1", "fd12::1", "64:ff9b::c000:201",
     "::ffff:192.0.2.1", "8.8.8.8"],
)  # fmt: skip
def test_allowed_addresses(address: str) -> None:
    assert addresses.allowed(address)


def test_addresses_which_the_administrator_allows() -> None:
    networks = [ipaddress.ip_network("127.0.0.0/8")]
    assert addresses.allowed("127.0.0.1", networks)
    assert addresses.allowed("::ffff:127.0.0.1", networks)
    assert not addresses.allowed("169.254.169.254", networks)
    assert not addresses.allowed("::1", networks)


_TEXT = st.text(max_size=12)
_URLS = st.one_of(
    _TEXT,
    st.builds("https://{}/{}".format, _TEXT, _TEXT),
    st.builds("https://h.example.com:{}/{}".format, st.integers(-1, 70000), _TEXT),
)
_WORDS = st.lists(st.one_of(_TEXT, st.sampled_from([*KINDS, "*", "web*"])), max_size=3)


@given(
    name=st.one_of(_TEXT, st.just("hook")),
    url=_URLS,
    given_=st.fixed_dictionaries(
        {},
        optional={
            "kind": st.one_of(st.lists(st.sampled_from([*KINDS, "*"]), max_size=2), _WORDS),
            "match": _WORDS,
            "tag": _WORDS,
            "severity": st.one_of(st.sampled_from(rules.SEVERITIES), _TEXT),
        },
    ),
    secret=st.one_of(st.just(""), _TEXT.map("whsec_{}".format), st.just("whsec_" + "A" * 43 + "=")),
)
def test_any_rule_is_refused_or_kept_as_it_is(
    name: str, url: str, given_: dict[str, Any], secret: str
) -> None:
    try:
        found = rules.make(name, url, given_, owner="jack", made=1.5, secret=secret)
    except errors.ParameterError as err:
        # A name may be in the message, and random texts repeat themselves.
        assert len(url) < 12 or url in name or url not in str(err)
        return
    record = json.loads(json.dumps(found.record()))
    assert rules.of_record(record) == found
    assert found.secret not in json.dumps(found.shown())
