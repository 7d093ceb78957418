"""Passkeys: the ceremonies with an authenticator in software, and all refusals."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import pytest

from fakes import authenticator
from fakes.authenticator import ATTESTED, EDDSA, ES256, PRESENT, RS256, VERIFIED, Authenticator
from fakes.kept_records import Kept
from ganeti.http.messages import Refused
from ganeti.rapi import passkeys, webauthn
from ganeti.rapi.guesses import ADDRESS_BURST
from ganeti.rapi.passkeys import CHALLENGE_S, KIND, Challenges, Passkeys
from ganeti.rapi.webauthn import PasskeyError

pytest.importorskip("fido2", reason="make venv installs it")

HOST = "cluster.example.org"
ORIGIN = f"https://{HOST}:5080"
ADDRESS = "192.0.2.1"


class Lab:
    def __init__(self) -> None:
        self.kept = Kept()
        self.clock = 1000.0
        self.host = HOST
        self.passkeys = Passkeys(self.kept, lambda: self.host, lambda: self.clock)

    def add(self, one: Authenticator, owner: str = "jill", **wrong: Any) -> Any:
        async def run() -> Any:
            options = await self.passkeys.creation_options(owner)
            return await self.passkeys.add(owner, one.create(options, ORIGIN, **wrong), "my phone")

        return asyncio.run(run())

    def login(self, one: Authenticator, origin: str = ORIGIN, **wrong: Any) -> str:
        return self.answer(one.get(self.passkeys.login_options(), origin, **wrong))

    def answer(self, answer: dict[str, Any], address: str = ADDRESS) -> str:
        return asyncio.run(self.passkeys.login(answer, address))


@pytest.fixture
def lab() -> Lab:
    return Lab()


@pytest.mark.parametrize("algorithm", [ES256, EDDSA, RS256])
@pytest.mark.parametrize("counts", [True, False])
def test_a_login(lab: Lab, algorithm: int, counts: bool) -> None:
    one = Authenticator(algorithm, counts=counts)
    record = lab.add(one)
    assert (record.owner, record.kind, passkeys.label(record)) == ("jill", KIND, "my phone")
    assert lab.login(one) == "jill"
    assert lab.login(one) == "jill"
    kept = lab.kept.records[KIND, record.key]
    assert kept.data["counter"] == (3 if counts else 0)
    # A counter of zero is no reason for a change of the configuration at each login.
    assert lab.kept.noted == ([] if counts else [(KIND, record.key)] * 2)


def test_several_passkeys_of_several_users(lab: Lab) -> None:
    first, second, third = Authenticator(), Authenticator(EDDSA), Authenticator()
    for one, owner in ((first, "jill"), (second, "jill"), (third, "jack")):
        lab.add(one, owner)
    assert [lab.login(one) for one in (first, second, third)] == ["jill", "jill", "jack"]
    (old, _new) = asyncio.run(lab.passkeys.of("jill"))
    with pytest.raises(Refused, match="user jack has no passkey"):
        asyncio.run(lab.passkeys.remove("jack", passkeys.public_id(old)))
    asyncio.run(lab.passkeys.remove("jill", passkeys.public_id(old)))
    with pytest.raises(Refused, match="is not known here"):
        lab.login(first)
    assert lab.login(second) == "jill"


def test_the_options_name_what_is_wanted(lab: Lab) -> None:
    lab.add(Authenticator())
    options = asyncio.run(lab.passkeys.creation_options("jill"))
    assert options["rp"]["id"] == HOST
    assert options["authenticatorSelection"]["userVerification"] == "required"
    assert [one["alg"] for one in options["pubKeyCredParams"]] == [EDDSA, ES256, RS256]
    assert len(options["excludeCredentials"]) == 1
    assert "jill" not in authenticator.decode(options["user"]["id"]).decode("latin-1")
    # Nobody learns from the options for a login which users have passkeys.
    assert lab.passkeys.login_options()["allowCredentials"] == []


WRONG_PAGES = {
    "another site": {"origin": "https://evil.example.net"},
    "a host below": {"origin": f"https://x.{HOST}"},
    "the domain above": {"origin": "https://example.org"},
    "without tls": {"origin": f"http://{HOST}"},
    "with a path": {"origin": f"https://{HOST}/2"},
    "with a user": {"origin": f"https://x@{HOST}"},
    "a wrong port": {"origin": f"https://{HOST}:x"},
    "no text": {"origin": 7},
    "a frame": {"crossOrigin": True},
    "an odd frame": {"crossOrigin": "no"},
    "another type": {"type": "payment.get"},
    "no challenge": {"challenge": None},
    "another challenge": {"challenge": authenticator.encode(bytes(56))},
    "a challenge which is not base64": {"challenge": "?"},
}


@pytest.mark.parametrize("client", WRONG_PAGES.values(), ids=WRONG_PAGES)
def test_wrong_pages(lab: Lab, client: dict[str, Any]) -> None:
    one = Authenticator()
    with pytest.raises(Refused) as caught:
        lab.add(one, client=client)
    assert caught.value.status == 400 and not lab.kept.records
    lab.add(one)
    with pytest.raises(Refused) as caught:
        lab.login(one, client=client)
    assert caught.value.status == 401


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"flags": VERIFIED | ATTESTED}, "nobody was at the authenticator"),
        ({"flags": PRESENT | ATTESTED}, "has not verified its user"),
        ({"flags": PRESENT | VERIFIED}, "has sent no new passkey"),
        ({"rp_id": "example.org"}, "not one for cluster.example.org"),
        ({"algorithm": -65535}, "of a kind that was not asked for"),
    ],
)
def test_wrong_new_passkeys(lab: Lab, wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(Refused, match=message) as caught:
        lab.add(Authenticator(), **wrong)
    assert caught.value.status == 400 and not lab.kept.records


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"flags": VERIFIED}, "nobody was at the authenticator"),
        ({"flags": PRESENT}, "has not verified its user"),
        ({"rp_id": "example.org"}, "not one for cluster.example.org"),
        ({"user_handle": b"x" * 32}, "not one of this user"),
        ({"signature": b""}, "the signature of the passkey is wrong"),
        ({"signature": b"\x30\x06\x02\x01\x01\x02\x01\x01"}, "the signature of the passkey is"),
    ],
)
@pytest.mark.parametrize("algorithm", [ES256, EDDSA, RS256])
def test_wrong_logins(lab: Lab, algorithm: int, wrong: dict[str, Any], message: str) -> None:
    one = Authenticator(algorithm)
    lab.add(one)
    with pytest.raises(Refused, match=message) as caught:
        lab.login(one, **wrong)
    assert caught.value.status == 401
    assert lab.login(one) == "jill"


def test_the_key_of_another_passkey(lab: Lab) -> None:
    one, other = Authenticator(), Authenticator()
    lab.add(one)
    other.id = one.id
    other.counter = 9
    with pytest.raises(Refused, match="signature"):
        lab.login(other, user_handle=b"")


def test_an_answer_counts_once(lab: Lab) -> None:
    one = Authenticator(counts=False)
    options = asyncio.run(lab.passkeys.creation_options("jill"))
    answer = one.create(options, ORIGIN)
    asyncio.run(lab.passkeys.add("jill", answer, ""))
    with pytest.raises(Refused, match="answered before"):
        asyncio.run(lab.passkeys.add("jill", answer, ""))
    answer = one.get(lab.passkeys.login_options(), ORIGIN)
    assert lab.answer(answer) == "jill"
    with pytest.raises(Refused, match="answered before"):
        lab.answer(answer)


def test_challenges_are_for_one_purpose(lab: Lab) -> None:
    one = Authenticator()
    options = asyncio.run(lab.passkeys.creation_options("jack"))
    with pytest.raises(Refused, match="not one of this server for this purpose"):
        asyncio.run(lab.passkeys.add("jill", one.create(options, ORIGIN), ""))
    lab.add(one)
    making = asyncio.run(lab.passkeys.creation_options("jill"))
    making["rpId"] = HOST
    with pytest.raises(Refused, match="not one of this server for this purpose"):
        lab.answer(one.get(making, ORIGIN))


def test_challenges_end(lab: Lab) -> None:
    one = Authenticator()
    lab.add(one)
    answer = one.get(lab.passkeys.login_options(), ORIGIN)
    lab.clock += CHALLENGE_S + 0.001
    with pytest.raises(Refused, match="older than 300 seconds"):
        lab.answer(answer)


def test_challenges_of_another_daemon() -> None:
    ours, theirs = Challenges(lambda: 1.0), Challenges(lambda: 1.0)
    with pytest.raises(PasskeyError, match="not one of this server"):
        ours.take(theirs.make("x"), "x")
    for text in (b"", b"x", bytes(56), ours.make("x")[1:]):
        with pytest.raises(PasskeyError, match="not one of this server"):
            ours.take(text, "x")


def test_used_challenges_are_forgotten_at_their_end() -> None:
    now = 5.0
    ours = Challenges(lambda: now)
    for _number in range(3):
        ours.take(ours.make("x"), "x")
    now += CHALLENGE_S + 1
    ours.take(ours.make("x"), "x")
    assert len(ours._answered) == 1


def test_a_copy_of_the_authenticator(lab: Lab) -> None:
    one = Authenticator()
    lab.add(one)
    assert lab.login(one) == "jill"
    one.counter -= 1
    with pytest.raises(Refused, match="there may be a copy of it"):
        lab.login(one)


def test_guesses_are_limited(lab: Lab) -> None:
    one, unknown = Authenticator(), Authenticator()
    lab.add(one)
    for _number in range(ADDRESS_BURST):
        with pytest.raises(Refused) as caught:
            lab.login(unknown)
        assert caught.value.status == 401
    with pytest.raises(Refused) as caught:
        lab.login(one)
    assert caught.value.status == 429 and dict(caught.value.headers)["Retry-After"]
    assert lab.answer(one.get(lab.passkeys.login_options(), ORIGIN), "198.51.100.7") == "jill"
    lab.clock += 60
    assert lab.login(one) == "jill"


def test_limits(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passkeys, "MOST", 1)
    options = asyncio.run(lab.passkeys.creation_options("jill"))
    lab.add(Authenticator())
    with pytest.raises(Refused, match="has 1 passkeys, which is the limit"):
        lab.add(Authenticator())
    # Also when it was asked for before.
    with pytest.raises(Refused, match="which is the limit"):
        asyncio.run(lab.passkeys.add("jill", Authenticator().create(options, ORIGIN), ""))
    with pytest.raises(Refused, match="all printable"):
        asyncio.run(lab.passkeys.add("jill", {}, "a\nb"))


def test_a_passkey_is_added_once(lab: Lab) -> None:
    one = Authenticator()
    lab.add(one)
    with pytest.raises(Refused, match="registered already"):
        lab.add(one, "jack")


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"response": 1},
        {"response": {}},
        {"response": {"clientDataJSON": 1}},
        {"response": {"clientDataJSON": "?"}},
        {"response": {"clientDataJSON": authenticator.encode(b"{")}},
        {"response": {"clientDataJSON": authenticator.encode(b"[" * 5000)}},
        {"response": {"clientDataJSON": authenticator.encode(b"\xff")}},
        {"response": {"clientDataJSON": authenticator.encode(b"7")}},
        {"response": {"clientDataJSON": authenticator.encode(b"{}")}},
    ],
    ids=range(10),
)
def test_answers_which_make_no_sense(lab: Lab, answer: dict[str, Any]) -> None:
    with pytest.raises(Refused) as caught:
        asyncio.run(lab.passkeys.add("jill", answer, ""))
    assert caught.value.status == 400
    with pytest.raises(Refused) as caught:
        lab.answer(answer)
    assert caught.value.status == 401


@pytest.mark.parametrize(
    "attestation",
    [b"", b"\x01", b"\xff", b"\x81" * 3000, authenticator.cbor({"authData": b"x"})]
    + [authenticator.cbor({"authData": bytes(55)}), authenticator.cbor({"fmt": "none"}) + b"x"],
    ids=range(7),
)
def test_attestations_which_make_no_sense(lab: Lab, attestation: bytes) -> None:
    options = asyncio.run(lab.passkeys.creation_options("jill"))
    answer = Authenticator().create(options, ORIGIN)
    answer["response"]["attestationObject"] = authenticator.encode(attestation)
    with pytest.raises(Refused) as caught:
        asyncio.run(lab.passkeys.add("jill", answer, ""))
    assert caught.value.status == 400


def test_every_shorter_answer_is_refused(lab: Lab) -> None:
    one = Authenticator()
    options = asyncio.run(lab.passkeys.creation_options("jill"))
    whole = authenticator.decode(one.create(options, ORIGIN)["response"]["attestationObject"])
    client = json.dumps(
        {"type": "webauthn.create", "challenge": options["challenge"], "origin": ORIGIN}
    ).encode()
    expected = webauthn.Expected(authenticator.decode(options["challenge"]), HOST)
    assert webauthn.made(client, whole, expected).id == one.id
    for length in range(len(whole)):
        with pytest.raises(PasskeyError):
            webauthn.made(client, whole[:length], expected)


def test_without_a_cluster(lab: Lab) -> None:
    lab.host = ""
    with pytest.raises(Refused, match="not in a cluster"):
        lab.passkeys.login_options()


def test_without_the_package(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("fido2", "fido2.cbor", "fido2.cose"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(Refused, match="python3-fido2") as caught:
        lab.passkeys.login_options()
    assert caught.value.status == 503
    with pytest.raises(Refused, match="python3-fido2"):
        asyncio.run(lab.passkeys.creation_options("jill"))
    with pytest.raises(Refused, match="python3-fido2"):
        asyncio.run(lab.passkeys.add("jill", {}, ""))
    with pytest.raises(Refused, match="python3-fido2"):
        lab.answer({})
