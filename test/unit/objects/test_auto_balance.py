"""The settings of the automatic balance."""

from __future__ import annotations

import pytest

from fakes.config import cluster_of
from ganeti import errors
from ganeti.objects import cluster_rules, codec


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ({}, None),
        ({"moves_per_hour": 1}, {"moves_per_hour": 1, "min_gain": 0.01}),
        ({"min_gain": 2, "moves_per_hour": 1000}, {"moves_per_hour": 1000, "min_gain": 2}),
    ],
)
def test_accepted(given, stored):
    assert cluster_rules.auto_balance(given) == stored


@pytest.mark.parametrize(
    ("given", "fragment"),
    [
        ({"moves": 1}, "moves is not one of moves_per_hour, min_gain"),
        ({"moves_per_hour": 0}, "0 is not a number of moves in an hour from 1 to 1000"),
        ({"moves_per_hour": True}, "True is not a number of moves"),
        ({"moves_per_hour": 2.5}, "2.5 is not a number of moves"),
        ({"min_gain": 0}, "0 is not a gain above 0"),
        ({"min_gain": float("inf")}, "inf is not a gain above 0"),
        ({"min_gain": float("nan")}, "nan is not a gain above 0"),
        ({"min_gain": "much"}, "'much' is not a gain above 0"),
    ],
)
def test_refused(given, fragment):
    with pytest.raises(errors.ParameterError, match=fragment):
        cluster_rules.auto_balance(given)


def test_it_is_not_stored_while_it_is_off():
    assert "auto_balance" not in codec.to_dict(cluster_of(1).cluster)
