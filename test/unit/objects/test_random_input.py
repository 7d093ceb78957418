"""A configuration with anything at all in the wrong place is refused with the path to it."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from ganeti import errors, objects
from ganeti.objects import codec

TEXT = (Path(__file__).parents[2] / "data/cluster_config/cluster_config_3.1.json").read_text()
JUNK = st.sampled_from(
    [None, True, -1, 1.5, "", "junk", [], [1], ["x"], [[]], {}, {"x": 1}, {"x": {}}, [{}]]
)


def all_places(value, path=()):
    """Every container in the configuration with a key of it."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in items:
        yield (*path, key)
        if isinstance(inner, (dict, list)):
            yield from all_places(inner, (*path, key))


PLACES = list(all_places(json.loads(TEXT)))


@settings(max_examples=400, deadline=None)
@given(place=st.sampled_from(PLACES), junk=JUNK, drop=st.booleans())
def test_one_thing_wrong(place, junk, drop):
    stored = json.loads(TEXT)
    container = stored
    for key in place[:-1]:
        container = container[key]
    if drop:
        del container[place[-1]]
    else:
        container[place[-1]] = junk
    try:
        config = codec.from_dict(objects.ConfigData, stored)
    except errors.ConfigurationError as err:
        assert err.path and err.path in str(err)
        # The path leads to where the change was made, or to a neighbour that is missing now.
        assert err.path.split("/")[0] == str(place[0])
        return
    again = codec.from_dict(objects.ConfigData, json.loads(json.dumps(codec.to_dict(config))))
    assert again == config
