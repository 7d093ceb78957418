"""Making a cluster with this machine as its first node: ``gnt-cluster init`` up to the first job.

The order of the steps: check everything; write credentials, configuration, ssconf files and an
empty queue; start the daemons. When a step fails, the steps before it are undone in reverse.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from ganeti import errors
from ganeti.backend.node import openvswitch
from ganeti.bootstrap import detection, node_state, requirements
from ganeti.bootstrap.first_config import build_config
from ganeti.bootstrap.init_params import InitParams
from ganeti.config import ssconf, verify
from ganeti.configfile import files as configfile
from ganeti.objects import Cluster, codec, hypervisors
from ganeti.platform import hosts, paths
from ganeti.rpc import AddressRunner, key_pins, open_client
from ganeti.utils.undo import UndoStack
from ganeti.wire import json
from ganeti.wire.calls import VERSION


class Initialized(NamedTuple):
    """What ``gnt-cluster init`` tells its user.

    :ivar chosen: what was chosen because no option said it, such as ``the hypervisor kvm``.
    :ivar lacking: what instances need and this machine does not have.
    :ivar as_root: for each enabled hypervisor whose guests run as root: the option of
        ``gnt-cluster modify`` which changes that.
    :ivar warnings: what did not work, although the cluster exists.
    """

    chosen: list[str]
    lacking: list[str]
    as_root: Sequence[str] = ()
    warnings: Sequence[str] = ()


def init_cluster(params: InitParams) -> Initialized:
    """Make this machine the first node and the master of a new cluster, and start its daemons.

    It returns when the address of the cluster answers, or does not in time.
    What was not given is chosen from what this machine has (:mod:`ganeti.bootstrap.detection`).

    :raises OpPrereqError: a parameter is wrong, or this machine lacks something; the error names
        everything that is missing, and nothing was changed.
    :raises OpExecError: a daemon does not start; everything was undone.
    :raises OSError: a file cannot be written; everything was undone.
    """
    here = paths.current()
    requirements.check_no_cluster(here)
    findings = requirements.Findings()
    me, cluster_host = requirements.check_names(params, findings)
    choice = detection.complete(params, me.ip, findings)
    data = build_config(choice.params, me, cluster_host)
    made = [data.cluster.file_storage_dir] if choice.makes_file_storage else []
    requirements.check_cluster(data.cluster, here, findings, will_be_made=made)
    findings.refuse()
    problems = verify.check(data)
    if problems:
        raise errors.OpPrereqError("; ".join(problems), errors.ECODE_INVAL)
    with UndoStack() as undo:
        undo.add(f"files in {here.data_dir}", partial(node_state.remove_state, here))
        if choice.makes_file_storage:
            new = detection.make_file_storage(here)
            undo.add("the directory of file storage", partial(detection.remove_file_storage, new))
        if data.cluster.ndparams["ovs"]:
            _configure_switch(data.cluster.ndparams)
        master = data.cluster.master_node
        digest = node_state.write_credentials(here, node_state.new_credentials(), me.name)
        cluster = dataclasses.replace(data.cluster, candidate_certs={master: digest})
        data = dataclasses.replace(data, cluster=cluster)
        node_state.make_queue(here)
        ssconf.write_local(ssconf.values(data), here)

        def start(daemon: str) -> None:
            undo.add(daemon, partial(node_state.daemon_util, "stop", daemon))
            node_state.daemon_util("start", daemon)

        start(node_state.NODED)
        first = dataclasses.replace(data.nodes[master], key_pins=_shown_key(me))
        data = dataclasses.replace(data, nodes={master: first})
        ssconf.write_local(ssconf.values(data), here)  # with the key of this node
        configfile.replace(
            here.cluster_conf_file,
            json.dumps(codec.to_dict(data)) + "\n",
            mode=configfile.FILE_MODE,
        )
        for daemon in (node_state.MASTER, node_state.CONFD, node_state.RAPI):
            start(daemon)
        undo.commit()
    late = node_state.await_master_address(data.cluster.master_ip)
    return Initialized(
        choice.words,
        findings.notes,
        _guests_as_root(data.cluster),
        [] if late is None else [late],
    )


def _configure_switch(params: Mapping[str, Any]) -> None:
    """Make the Open vSwitch of this node. It stays when the cluster cannot be made.

    :raises OpPrereqError: it cannot be made.
    """
    try:
        openvswitch.configure(params["ovs_name"], params["ovs_link"] or None)
    except errors.ConfigurationError as err:
        raise errors.OpPrereqError(str(err), errors.ECODE_ENVIRON) from err


def _guests_as_root(cluster: Cluster) -> list[str]:
    """For each enabled hypervisor whose guests run as root, the option which changes that."""
    found = []
    for name in cluster.enabled_hypervisors if os.geteuid() == 0 else ():
        descriptor = hypervisors.of(name)
        choice = descriptor.user_parameter
        if choice is not None and descriptor.keeps_daemon_user(cluster.hvparams[name]):
            found.append(f"-H {name}:{choice.name}={choice.pool}")
    return found


def _shown_key(me: hosts.Hostname) -> tuple[str, ...] | None:
    """Return the key which the node daemon of this machine shows; None when it does not answer.

    The master daemon learns it later, then.
    """
    answer = AddressRunner(open_client()).first_contact(VERSION, {me.name: me.ip})[me.name]
    pin = key_pins.pin_of(answer.certificate)
    return None if pin is None else (pin,)
