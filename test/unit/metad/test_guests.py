"""What the metadata daemon knows: descriptions, addresses, reports."""

from __future__ import annotations

import pytest

from ganeti import errors
from ganeti.constants import metad as const
from ganeti.metad import guests
from ganeti.metad.guests import Guests

NIC = {"name": "ganeti:communication:web1", "ip": "169.254.0.7", "mac": "52:54:00:00:00:07"}


def describe(name="web1", ip="169.254.0.7", **more):
    return {
        "name": name,
        "os": "debian+small",
        "nics": [{"name": None, "ip": None}, {**NIC, "ip": ip}],
        **more,
    }


def test_an_instance_as_it_is_stored_can_be_described():
    guest = guests.parse(describe(osparams={"a": "1"}, osparams_private={"b": "2"}))
    assert guest.parameters == {"a": ("1", "public"), "b": ("2", "private")}
    assert (guest.ip, guest.mac, guest.task) == ("169.254.0.7", "52:54:00:00:00:07", None)


def test_parameters_have_their_visibility_and_are_in_no_repr():
    guest = guests.parse(
        describe(
            osparams={"a": "old", "s": "old"},
            osparams_public={"a": "1"},
            osparams_secret={"s": "hush"},
            helper={"task": "install", "environment": {"OSP_S": "hush"}},
        )
    )
    assert guest.parameters == {"a": ("1", "public"), "s": ("hush", "secret")}
    assert "hush" not in repr(guest)
    assert "hush" not in str(guest.facts)


@pytest.mark.parametrize(
    ("description", "fragment"),
    [
        (None, "dictionary"),
        ({"nics": [NIC]}, "no name"),
        ({"name": "web1"}, "no interface"),
        ({"name": "web1", "nics": [{"name": "lan", "ip": "1.2.3.4"}]}, "no interface"),
        ({"name": "web1", "nics": [{**NIC, "ip": None}]}, "no IPv4 address"),
        ({"name": "web1", "nics": [{**NIC, "ip": "169.254.0.7/16"}]}, "no IPv4 address"),
        (describe(osparams_secret=["hush"]), "osparams_secret is not a dictionary"),
        (describe(helper={"task": "burn"}), "'burn' is not a task"),
    ],
)
def test_what_is_no_description(description, fragment):
    with pytest.raises(errors.ParameterError, match=fragment) as caught:
        guests.parse(description)
    assert "hush" not in str(caught.value)


def test_an_address_belongs_to_the_last_who_had_it():
    known = Guests(now=lambda: 12.0)
    known.update(guests.parse(describe("web1")))
    known.update(guests.parse(describe("web2")))
    found = known.asking("169.254.0.7")
    assert found is not None and found.name == "web2"
    assert known.named("web1") is None
    # A guest that moved to another address is no longer at the first.
    known.update(guests.parse(describe("web2", ip="169.254.0.8")))
    assert known.asking("169.254.0.7") is None
    assert [guest.name for guest in known.all()] == ["web2"]
    assert known.remove("web2") and not known.remove("web2")


def test_the_first_contact_is_remembered():
    times = iter((1.0, 2.0))
    known = Guests(now=lambda: next(times))
    known.update(guests.parse(describe()))
    for _ in range(3):
        known.asking("169.254.0.7")
    guest = known.named("web1")
    assert guest is not None and guest.report.contact == 1.0


def test_of_a_long_report_the_end_is_kept():
    report = guests.GuestReport()
    report.add_log(b"a" * const.LOG_MAX_BYTES)
    report.add_log("the end é".encode())
    assert len(report.log) == const.LOG_MAX_BYTES
    assert report.to_wire()["log"].endswith("the end é")
