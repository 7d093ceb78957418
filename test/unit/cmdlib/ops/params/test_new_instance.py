"""What a new instance takes from a reservation or an export, and what the user said instead."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import pytest

from ganeti import ht
from ganeti.cmdlib.ops.params.new_instance import completed_op
from ganeti.opcodes.instance import OpInstanceCreate

SOURCE = SimpleNamespace(
    os="deb",
    beparams={"maxmem": 512, "minmem": 256, "vcpus": 2},
    osparams={"size": "big", "color": "red"},
    osparams_private=ht.PrivateDict({"key": "old"}),
    tags=("blue",),
)


def create(**changes: Any) -> OpInstanceCreate:
    return OpInstanceCreate(
        **{"instance_name": "web", "mode": "create", "disks": [], "nics": [], **changes}
    )


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (
            {},
            {
                "os_type": "deb",
                "beparams": SOURCE.beparams,
                "osparams": SOURCE.osparams,
                "osparams_private": {"key": "old"},
                "tags": ["blue"],
            },
        ),
        ({"beparams": {"memory": 64}}, {"beparams": {"maxmem": 64, "minmem": 64, "vcpus": 2}}),
        ({"tags": ["red"]}, {"tags": ["red"]}),
        ({"os_type": "bsd"}, {"os_type": "bsd", "osparams": {}, "osparams_private": None}),
        (
            {"osparams": {"size": "small"}, "osparams_secret": {"key": "new"}},
            {"osparams": {"size": "small", "color": "red"}, "osparams_private": None},
        ),
    ],
)
def test_what_is_given_goes_first(given: dict[str, Any], wanted: dict[str, Any]) -> None:
    op = create(**given)
    before = copy.deepcopy(op.to_dict())
    completed = completed_op(op, SOURCE)
    assert {name: getattr(completed, name) for name in wanted} == wanted
    assert op.to_dict() == before
