"""Files of ssconf: no value becomes a line of its own, and all are read as they were written."""

from __future__ import annotations

import dataclasses
import os

from hypothesis import example, given
from hypothesis import strategies as st

from fakes.config import cluster_of
from ganeti.config import ssconf
from ganeti.constants import ssconf as const
from ganeti.platform import paths
from ganeti.wire import json


def written(params):
    data = cluster_of(1)
    cluster = dataclasses.replace(data.cluster, hvparams={"kvm": params})
    return ssconf.values(dataclasses.replace(data, cluster=cluster))[const.HVPARAMS_PREFIX + "kvm"]


@given(st.text(max_size=60))
@example("console=ttyS0\nroot_path=/dev/sda")
@example("a\r")
@example("a\x0bb\x0cc\x85d\u2028e")
def test_a_parameter_is_one_line(kernel_args):
    text = written({"kernel_args": kernel_args, "root_path": "/dev/vda1"})
    first, second, end = text.split("\n")
    assert (second, end) == ("root_path=/dev/vda1", "")
    value = first.removeprefix("kernel_args=")
    if "\n" in kernel_args or "\r" in kernel_args:
        value = json.loads(value)
    assert value == kernel_args


@given(st.lists(st.text(min_size=1, max_size=20).filter(lambda one: "\n" not in one), max_size=5))
def test_lists_are_read_as_they_were_written(tmp_path_factory, names):
    where = paths.Paths(str(tmp_path_factory.getbasetemp()))
    path = where.ssconf_file(const.CLUSTER_TAGS)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    ssconf.write_local({const.CLUSTER_TAGS: "".join(f"{name}\n" for name in names)}, where)
    assert ssconf.SimpleStore(where).get_list(const.CLUSTER_TAGS) == names
