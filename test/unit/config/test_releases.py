"""What a release can read, and the way back to an earlier one."""

from __future__ import annotations

import copy

import pytest

from ganeti import RELEASE, errors
from ganeti.config import releases, upgrade
from ganeti.constants import cluster as const
from ganeti.objects import codec

from .samples import small_cluster


@pytest.fixture
def config() -> dict:
    return upgrade.upgrade(codec.to_dict(small_cluster()))


def earlier(**without: str) -> releases.Facts:
    """This release without some fields."""
    own = releases.own_facts()
    fields = {
        place: [name for name in names if name != without.get(place)]
        for place, names in own.fields.items()
    }
    return own._replace(release="0.8.0", fields=fields)


def test_facts_are_read_again() -> None:
    own = releases.own_facts()
    assert (own.release, own.config_version) == (RELEASE, const.CONFIG_VERSION)
    assert releases.parse_facts(releases.facts_text(own)) == own
    assert "witness" in own.fields["cluster"] and "tpm_version" in own.parameters["kvm"]
    for wrong in (
        "",
        "1",
        "{}",
        '{"release": 1}',
        releases.facts_text(own).replace("[", '{"x":', 1),
    ):
        with pytest.raises(errors.ParseError):
            releases.parse_facts(wrong)


def test_nothing_to_do(config: dict) -> None:
    assert releases.lost(config, releases.own_facts()) == []
    assert releases.convert_back(config, releases.own_facts()) == config


def test_a_setting_is_never_lost(config: dict) -> None:
    config["cluster"]["witness"] = "https://w.example.com/x"
    before = copy.deepcopy(config)
    other = earlier(cluster="witness")
    assert releases.lost(config, other) == ["the cluster: witness"]
    with pytest.raises(
        errors.ConfigurationError, match="release 0.8.0 does not have this: the clus"
    ):
        releases.convert_back(config, other)
    assert config == before
    # The release has other settings, which stay.
    config["cluster"]["witness"] = None
    config["cluster"]["auto_failover"] = 60
    found = releases.convert_back(config, other)
    assert "witness" not in found["cluster"] and found["cluster"]["auto_failover"] == 60


def test_what_the_master_writes_for_itself_is_left_out(config: dict) -> None:
    node = next(iter(config["nodes"].values()))
    node["key_pins"] = {"ed25519": "x"}
    assert releases.lost(config, earlier(nodes="key_pins")) == []
    found = releases.convert_back(config, earlier(nodes="key_pins"))
    assert not any("key_pins" in one for one in found["nodes"].values())


def test_parameters_of_hypervisors(config: dict) -> None:
    config["cluster"]["hvparams"]["kvm"]["tpm_version"] = "2.0"
    own = releases.own_facts()
    other = own._replace(
        parameters={
            **own.parameters,
            "kvm": [n for n in own.parameters["kvm"] if n != "tpm_version"],
        }
    )
    assert releases.lost(config, other) == ["the cluster: parameter tpm_version of kvm"]
    config["cluster"]["hvparams"]["kvm"]["tpm_version"] = ""
    found = releases.convert_back(config, other)["cluster"]["hvparams"]["kvm"]
    assert "tpm_version" not in found and "firmware" in found


def test_a_version_without_steps_back(config: dict) -> None:
    other = releases.own_facts()._replace(config_version=2_160_000)
    with pytest.raises(errors.ConfigurationError, match="back to version 2.16"):
        releases.convert_back(config, other)
