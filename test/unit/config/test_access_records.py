"""The rules for access records, and their place in the file of the configuration."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from ganeti import errors
from ganeti.config import access_records, damaged, upgrade
from ganeti.config.text import ConfigText
from ganeti.config.verify import check
from ganeti.objects import AccessRecord, ConfigData, codec
from ganeti.tools.sanitize_config import Sanitizer

from .samples import small_cluster

KEY = "5" * 64
RECORD = AccessRecord(
    uuid=access_records.uuid_of("session", KEY),
    kind="session",
    key=KEY,
    owner="jack",
    ctime=5.0,
    expires=9.0,
    used=6.0,
    data={"by": "password"},
)


def with_record(**changed: Any) -> ConfigData:
    record = dataclasses.replace(RECORD, **changed)
    return dataclasses.replace(small_cluster(), access_records={record.uuid: record})


def found_problems(data: ConfigData) -> list[str]:
    return [one for one in check(data) if "access" in one]


@pytest.mark.parametrize(
    ("changed", "fragment"),
    [
        ({"kind": "Session"}, "cannot be the kind"),
        ({"kind": ""}, "cannot be the kind"),
        ({"key": ""}, "the key of"),
        ({"key": "a/b"}, "the key of"),
        ({"key": "a" * 129}, "the key of"),
        ({"owner": ""}, "the owner of"),
        ({"owner": "a" * 257}, "the owner of"),
        ({"data": {"a": "b" * access_records.MAX_DATA_BYTES}}, "at most 4096"),
    ],
)
def test_what_a_record_may_not_have(changed: dict[str, Any], fragment: str) -> None:
    with pytest.raises(errors.ParameterError, match=fragment):
        access_records.check(dataclasses.replace(RECORD, **changed))
    assert len(found_problems(with_record(**changed))) == 1


def test_the_file_names_records_only_when_there_are_some() -> None:
    """A cluster which nobody uses by sessions has the file of other versions."""
    data = with_record()
    text = ConfigText(data)
    found = json.loads(b"".join(text.render(data, ())))
    assert found["access_records"][RECORD.uuid]["owner"] == "jack"
    assert codec.from_dict(ConfigData, found) == data
    without = dataclasses.replace(data, access_records={})
    found = json.loads(b"".join(text.render(without, [("access_records", RECORD.uuid)])))
    assert "access_records" not in found
    assert codec.from_dict(ConfigData, found) == without


def test_verification_names_a_record_without_its_key() -> None:
    assert found_problems(with_record()) == []
    other = access_records.uuid_of("token", KEY)
    (problem,) = found_problems(with_record(uuid=other))
    assert "session of jack" in problem and KEY not in problem
    (problem,) = found_problems(with_record(key="a/b"))
    assert "a/b" not in problem


def test_a_record_which_cannot_be_understood_stops_nothing() -> None:
    raw = codec.to_dict(with_record())
    raw["access_records"][RECORD.uuid]["owner"] = 7
    data = damaged.decode(raw)
    assert data.access_records == {}
    (problem,) = damaged.problems(data)
    assert "access_records/" in problem


def test_the_way_back_drops_records_and_asks_nobody() -> None:
    raw = codec.to_dict(with_record())
    assert upgrade.own_features(raw) == []
    back = upgrade.downgrade(raw, upgrade.const.CONFIG_VERSION)
    assert "access_records" in raw and "access_records" not in back


def test_a_sanitized_configuration_has_no_records() -> None:
    raw = json.loads(json.dumps(codec.to_dict(with_record())))
    made = Sanitizer(
        names=False, ips=False, lvs=False, os_names=False, randomize=False, domain="example.com"
    ).sanitize(raw)
    assert "access_records" not in made and "jack" not in json.dumps(made)


def test_the_end_of_a_record() -> None:
    """A clock which runs fast for some hours removes nothing."""
    assert not access_records.ended(RECORD, 9.0 + access_records.KEPT_S)
    assert access_records.ended(RECORD, 9.1 + access_records.KEPT_S)
    assert not access_records.ended(dataclasses.replace(RECORD, expires=None), 1e12)
