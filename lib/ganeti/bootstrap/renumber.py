"""Other addresses for all nodes at once, also for the master: ``gnt-cluster renumber``.

``gnt-node add --readd`` gives one node another address, with the master's help. When the network of
the cluster is renumbered, the master daemon finds nobody at the addresses that it knows, and does
not start. So this runs without it, on the master:

1. The new addresses are those which the user gives, or to which the names of the nodes and of the
   cluster resolve. They must make no contradiction that the configuration did not have before.
2. The node daemons are asked at their new addresses, and have to show their keys. Those which do
   not answer are named; the vote at the start of the master daemon decides whether too many are
   missing.
3. The daemons of the master are stopped, the configuration is written with the new addresses, and
   the former address of the cluster is taken down.
4. The daemons of the master are started. They inform all nodes. When they do not start, the
   configuration gets the former addresses again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from ganeti import errors
from ganeti.bootstrap import node_state
from ganeti.config import Config, View, ssconf, verify
from ganeti.config import api as config_file
from ganeti.config.history import Author
from ganeti.objects import ConfigData, Node, updated
from ganeti.objects.disk_templates import INT_MIRRORED
from ganeti.platform import hosts, machine, paths
from ganeti.rpc import AddressRunner, key_pins, open_client
from ganeti.rpc.master_ip import take_down_at
from ganeti.utils import net
from ganeti.wire.calls import ETC_HOSTS_MODIFY, VERSION

Say = Callable[[str], None]
Lookup = Callable[[str], hosts.Hostname]


class Given(NamedTuple):
    """What the user gives for a node; None stands for what follows from its name."""

    primary_ip: str | None = None
    secondary_ip: str | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """The configuration before and after.

    :ivar nodes: the nodes whose addresses change, as they are afterwards, in order of their names.
    """

    before: ConfigData
    after: ConfigData
    nodes: tuple[Node, ...]

    @property
    def new_cluster_ip(self) -> bool:
        """Whether the address of the cluster changes."""
        return self.before.cluster.master_ip != self.after.cluster.master_ip

    def lines(self) -> list[str]:
        """Return what changes, for people."""
        found = []
        for node in self.nodes:
            old = self.before.nodes[node.uuid]
            for kind, was, is_now in (
                ("primary", old.primary_ip, node.primary_ip),
                ("secondary", old.secondary_ip, node.secondary_ip),
            ):
                if was != is_now:
                    found.append(f"node {node.name}: {kind} address {was} becomes {is_now}")
        if self.new_cluster_ip:
            cluster = self.after.cluster
            found.append(
                f"cluster {cluster.cluster_name}: address {self.before.cluster.master_ip} becomes"
                f" {cluster.master_ip}"
            )
        return found

    def replicating(self) -> list[str]:
        """Return the instances whose replicas are connected over a secondary address that changes.

        Their disks use the new address from the next start of the instance.
        """
        moved = {
            node.uuid
            for node in self.nodes
            if node.secondary_ip != self.before.nodes[node.uuid].secondary_ip
        }
        found = set()
        for instance in self.after.instances.values():
            for uuid in instance.disks if instance.disks_active else ():
                disk = self.after.disks.get(uuid)
                if disk is not None and disk.dev_type in INT_MIRRORED:
                    if moved & set(disk.all_node_uuids()):
                        found.add(instance.name)
        return sorted(found)


def plan(
    given: Mapping[str, Given], cluster_ip: str | None = None, *, lookup: Lookup | None = None
) -> Plan:
    """Find the new addresses of all nodes and of the cluster.

    :param given: addresses by the names of nodes; the names of the others are resolved.
    :param cluster_ip: address of the cluster; None resolves its name.
    :raises OpPrereqError: this machine is not the master, a node is not known, a name does not
        resolve, or the addresses contradict each other or those of instances.
    :raises ConfigurationError: the configuration cannot be read.
    """
    data, _version = config_file.load(paths.current().cluster_conf_file)
    master = data.nodes[data.cluster.master_node]
    if master.name.lower() != machine.current().hostname():
        raise errors.OpPrereqError(
            f"the addresses of the cluster are changed on its master, {master.name}",
            errors.ECODE_INVAL,
        )
    known = View(data)
    by_uuid = {known.expand_node(name).uuid: addresses for name, addresses in given.items()}
    resolve = lookup or machine.current().lookup
    nodes = {
        node.uuid: _renumbered(node, by_uuid.get(node.uuid, Given()), resolve)
        for node in data.nodes.values()
    }
    cluster = data.cluster
    wanted_ip = cluster_ip or _address(resolve, cluster.cluster_name)
    if wanted_ip != cluster.master_ip:
        cluster = updated(cluster, master_ip=wanted_ip)
    after = replace(data, nodes=nodes, cluster=cluster)
    _check(data, after)
    moved = [node for node in nodes.values() if node != data.nodes[node.uuid]]
    return Plan(data, after, tuple(sorted(moved, key=lambda node: node.name)))


def _address(resolve: Lookup, name: str) -> str:
    try:
        return resolve(name).ip
    except errors.ResolverError as err:
        raise errors.OpPrereqError(
            f"{err}. Let the name resolve, or give the address.", errors.ECODE_RESOLVER
        ) from err


def _renumbered(node: Node, given: Given, resolve: Lookup) -> Node:
    primary_ip = given.primary_ip or _address(resolve, node.name)
    # A node without a separate secondary address gets none here.
    alone = node.secondary_ip == node.primary_ip
    secondary_ip = given.secondary_ip or (primary_ip if alone else node.secondary_ip)
    if (primary_ip, secondary_ip) == (node.primary_ip, node.secondary_ip):
        return node
    return updated(node, primary_ip=primary_ip, secondary_ip=secondary_ip)


def _check(before: ConfigData, after: ConfigData) -> None:
    """Check that the new addresses make no contradiction.

    :raises OpPrereqError: they do.
    """
    known = set(verify.check(before))
    problems = [problem for problem in verify.check(after) if problem not in known]
    families = {
        net.is_ipv6(address)
        for node in after.nodes.values()
        for address in (node.primary_ip, after.cluster.master_ip)
    }
    if len(families) > 1:
        problems.append("primary addresses and the one of the cluster must be of one family")
    separate = {node.primary_ip != node.secondary_ip for node in after.nodes.values()}
    was_mixed = len({n.primary_ip != n.secondary_ip for n in before.nodes.values()}) > 1
    if len(separate) > 1 and not was_mixed:
        problems.append("either all nodes or none must have a separate secondary address")
    if problems:
        raise errors.OpPrereqError(
            f"these addresses cannot be used: {'; '.join(problems)}", errors.ECODE_NOTUNIQUE
        )


def unreachable_nodes(wanted: Plan) -> dict[str, str]:
    """Ask the node daemons at their new addresses; return why some do not answer, by name.

    Nodes which are marked offline are not asked.
    """
    online = [node for node in wanted.after.nodes.values() if not node.offline]
    answers = _runner(wanted.after).call_addresses(
        VERSION, {node.name: node.primary_ip for node in online}
    )
    return {
        name: str(answer.failure)
        for name, answer in sorted(answers.items())
        if answer.failure is not None
    }


def renumber(wanted: Plan, say: Say) -> list[str]:
    """Write the new addresses into the configuration, and start the master with them.

    :returns: warnings.
    :raises OpExecError: the daemons of the master could not be stopped or started; the
        configuration has the former addresses.
    """
    here = paths.current()
    say("stopping the daemons of the master")
    node_state.daemon_util("stop-master")
    say("writing the configuration")
    _write(here, wanted.after)
    warnings = _prepare_master(wanted)
    say("starting the daemons of the master")
    try:
        node_state.daemon_util("start-master")
    except errors.OpExecError as err:
        _write(here, wanted.before)
        raise errors.OpExecError(
            f"{err}. The configuration has the former addresses again. Check that the node daemons"
            " of most master candidates run and can be reached at their new addresses, then run"
            " this command once more."
        ) from err
    return warnings


def _write(here: paths.Paths, wanted: ConfigData) -> None:
    """Write the addresses of a state into the configuration and the ssconf files of this node."""
    config = Config.open(here.cluster_conf_file).acting_for(
        Author(None, None, "gnt:client:gnt-cluster", "renumber")
    )
    with config.transaction() as change:
        for uuid, node in wanted.nodes.items():
            present = change.data.nodes[uuid]
            if (present.primary_ip, present.secondary_ip) != (node.primary_ip, node.secondary_ip):
                change.nodes.update(
                    updated(present, primary_ip=node.primary_ip, secondary_ip=node.secondary_ip)
                )
        if change.data.cluster.master_ip != wanted.cluster.master_ip:
            change.cluster.update(updated(change.data.cluster, master_ip=wanted.cluster.master_ip))
    ssconf.write_local(ssconf.values(config.snapshot()), here)


def _prepare_master(wanted: Plan) -> list[str]:
    """Take the former address of the cluster down, and let ``/etc/hosts`` name the new ones.

    :returns: what could not be done.
    """
    data = wanted.after
    runner = _runner(data)
    master = data.nodes[data.cluster.master_node]
    warnings = []
    if wanted.new_cluster_ip:
        failure = take_down_at(
            runner, replace(data, cluster=wanted.before.cluster), data.cluster.master_node
        )
        if failure is not None:
            warnings.append(
                f"the former address {wanted.before.cluster.master_ip} of the cluster may still be"
                f" on {master.name}: {failure}"
            )
    for node in wanted.nodes if data.cluster.modify_etc_hosts else ():
        failure = runner.call_addresses(
            ETC_HOSTS_MODIFY,
            {master.name: master.primary_ip},
            mode="add",
            name=node.name,
            ip=node.primary_ip,
        )[master.name].failure
        if failure is not None:
            warnings.append(f"node {node.name} could not be changed in /etc/hosts: {failure}")
    return warnings


def _runner(data: ConfigData) -> AddressRunner:
    runner = AddressRunner(open_client())
    runner.expect_keys(key_pins.expected(data.nodes.values()))
    return runner
