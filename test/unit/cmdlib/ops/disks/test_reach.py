"""Whether other nodes can use disks on storage which nodes share."""

from __future__ import annotations

import pytest

from fakes.config import cluster_of, disk_of, instance_of, uuid_of
from fakes.master import Master
from ganeti import errors
from ganeti.cmdlib.base import Context
from ganeti.cmdlib.ops.disks import reach

NAMES = [f"node{number}.example.com" for number in range(1, 4)]
UUIDS = [uuid_of(f"node{number}") for number in range(1, 4)]


class Log:
    """Keeps the warnings."""

    def __init__(self):
        self.said = []
        self.warn = self.said.append


def lab(*templates, **changes):
    disks = tuple(disk_of("web", index, template) for index, template in enumerate(templates))
    web = instance_of("web", disks=tuple(disk.uuid for disk in disks))
    master = Master(cluster_of(3, (web,), disks, **changes))
    return master, Context(master.config, master.rpc, Log()), web


def test_disks_on_one_node_are_not_asked_for():
    master, ctx, web = lab("file")
    assert reach.ask(ctx, [web], UUIDS) == reach.Reach({}, {})
    assert master.rpc.calls == []


def test_one_question_for_all_instances_and_nodes():
    master, ctx, web = lab("rbd", "sharedfile", node_changes={3: {"offline": True}})
    assert reach.ask(ctx, [web, web], UUIDS[1:]) == reach.Reach({}, {})
    assert [node for node, _args in master.rpc.of("blockdev_reachable_multi")] == [NAMES[1]]
    ((_node, args),) = master.rpc.of("directory_mark")
    # The directory of the instance may be missing below what is mounted.
    assert args["directories"] == ["/srv/ganeti/shared-file-storage"]


def test_each_disk_has_its_own_answer():
    master, ctx, web = lab("rbd", "rbd", "rbd")
    answers = iter([True, False, errors.BlockDeviceError("no pool")])
    master.rpc.answers["blockdev_reachable_multi"] = lambda node, args: next(answers)
    found = reach.ask(ctx, [web], [UUIDS[1]])
    assert found.unusable == {
        UUIDS[1]: "disk/1 of instance web.example.com does not exist there; disk/2 of instance"
        " web.example.com: no pool"
    }


@pytest.mark.parametrize("unusable", [(), (1,), (1, 2)])
def test_the_configuration_for_an_allocator(unusable):
    master, ctx, web = lab("sharedfile")
    master.rpc.unmounted = {NAMES[index] for index in unusable}
    data = reach.config_without(ctx, [web], UUIDS[1:])
    assert [data.nodes[uuid].drained for uuid in UUIDS] == [index in unusable for index in range(3)]
    assert len(ctx.log.said) == bool(unusable)
    assert (data is master.config.snapshot()) == (not unusable)
