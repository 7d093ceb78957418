"""The program ``move-instance``: moves instances to another cluster.

It is the third party between two clusters which share a domain secret (Ganeti design 2.2,
*Inter-cluster instance moves*): it sends requests to the REST daemons of both clusters and carries
signed messages from one to the other. It needs neither the secret nor access to any node. The data
of the disks go directly from node to node.

For each instance, the source prepares a key; the destination creates the instance and announces the
addresses at which it receives the disks; the source stops the instance and sends the disks. Only
when the jobs of both clusters have succeeded, the new instance is started, if the old one was
running, and then the old one is removed. So no cluster removes or starts anything on the word of a
transfer alone, and the instance never runs in both clusters. When a step fails before, the instance
on the source is as it was, and nothing remains on the destination. If this program itself is ended,
the instance on the source may stay stopped.

What the source says about the instance is the text of another cluster. It is read, and not obeyed:
values which name things of a node, and are not those of the destination, are listed and refused
before anything is done, unless the user gives others or accepts them by their names
(:mod:`ganeti.objects.description`).

With ``--keep-source-instance`` both instances exist at the end, and run if the old one ran.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, TypedDict

from ganeti import errors
from ganeti.cli import terminal, value_types
from ganeti.cli.value_types import for_argparse
from ganeti.constants.instance import BE_PARAM_TYPES_WITH_MEMORY
from ganeti.objects import description, hvparams
from ganeti.objects.description import Described, Given, Taken
from ganeti.rapi import client as rapi

EXIT_SUCCESS: Final = 0
EXIT_FAILURE: Final = 1

_NOT_FOUND: Final = 404

#: The type of the log entry in which the destination announces where it receives the disks.
_ANNOUNCEMENT: Final = "remote-import"
_REMOTE: Final = "remote"

log = logging.getLogger("move-instance")


class MoveError(errors.GenericError):
    """An instance could not be moved; the message contains the reasons of both clusters."""


class JobFailed(MoveError):
    """A job of one of the clusters failed.

    :ivar ecode: the error code of the job's last opcode, such as ``errors.ECODE_STATE``; None when
        the error has none.
    """

    def __init__(self, message: str, ecode: str | None) -> None:
        super().__init__(message)
        self.ecode = ecode


class Announcement(TypedDict):
    """Where the destination receives the disks, as the log of its job publishes it.

    ``disks`` has for each disk a signed address, which the source decodes; ``x509_ca`` is the
    signed certificate of the receiver.
    """

    disks: list[Any]
    x509_ca: str


@dataclass(frozen=True, slots=True)
class Login:
    """Address and credentials for the REST daemon of a cluster."""

    host: str
    port: int
    ca_file: str | None
    username: str | None
    password: str | None

    def connect(self) -> rapi.GanetiRapiClient:
        """Make a new client; each thread needs its own."""
        config = rapi.GenericCurlConfig(cafile=self.ca_file) if self.ca_file else None
        return rapi.GanetiRapiClient(
            self.host,
            port=self.port,
            username=self.username,
            password=self.password,
            curl_config_fn=config,
        )


@dataclass(frozen=True, slots=True)
class MoveOptions:
    """Options of the user for the move, and the properties which change on the destination.

    :ivar nics: number of the interface -> parameters which change.
    :ivar accepted: names of values of the source which are taken, although they name things of a
        node (:mod:`ganeti.objects.description`).
    :ivar keep: leave the instance on the source.
    :ivar tries: number of attempts which consider only nodes that no other job uses at the moment.
    :ivar delay_s: seconds between two such attempts.
    """

    name: str | None = None
    primary_node: str | None = None
    secondary_node: str | None = None
    disk_template: str | None = None
    iallocator: str | None = None
    hypervisor: str | None = None
    hvparams: Mapping[str, Any] | None = None
    beparams: Mapping[str, Any] | None = None
    osparams: Mapping[str, Any] | None = None
    nics: Mapping[int, Mapping[str, Any]] | None = None
    os_type: str | None = None
    accepted: Sequence[str] = ()
    compress: str = "none"
    keep: bool = False
    tries: int = 0
    delay_s: float = 0


def taken(info: Mapping[str, Any], options: MoveOptions, cluster: Mapping[str, Any]) -> Taken:
    """Decide what is taken of what the source says about the instance.

    :param info: the result of ``GetInstanceInfo`` of the source.
    :param cluster: the result of ``GetInfo`` of the destination.
    :raises OpPrereqError: an accepted name cannot exist.
    """
    described = Described(
        source=f"the source cluster's description of instance {info['name']}",
        hypervisor=info["hypervisor"],
        hvparams=info["hv_instance"],
        os=info["os"] or "",
        osparams=info["os_instance"],
        nics=[_nic(nic) for nic in info["nics"]],
    )
    given = Given(
        hypervisor=options.hypervisor,
        hvparams=(options.hvparams or {}).keys(),
        os=options.os_type,
        osparams=(options.osparams or {}).keys(),
        nic_parts={number: values.keys() for number, values in (options.nics or {}).items()},
        accepted=options.accepted,
    )
    default = cluster.get("default_hypervisor") or ""
    return description.taken(described, given, description.defaults_of_info(cluster), default)


def specification(info: Mapping[str, Any], options: MoveOptions, values: Taken) -> dict[str, Any]:
    """Return the parameters of the new instance for the REST daemon of the destination.

    :param info: the result of ``GetInstanceInfo`` of the source.
    :param values: what is taken of it.
    """
    backend = dict(options.beparams or {})
    if "memory" in backend:
        backend["minmem"] = backend["maxmem"] = backend.pop("memory")
    # The defaults of the clusters may differ, so all values which the instance has are sent.
    return {
        "name": options.name or info["name"],
        "disk_template": options.disk_template or info["disk_template"],
        "disks": [_disk(disk) for disk in info["disks"]],
        "nics": [
            {**nic, **(options.nics or {}).get(index, {})} for index, nic in enumerate(values.nics)
        ],
        "os_type": values.os,
        "pnode": options.primary_node,
        "snode": options.secondary_node,
        "iallocator": options.iallocator,
        "hypervisor": options.hypervisor or values.hypervisor,
        "hvparams": {**values.hvparams, **(options.hvparams or {})},
        "beparams": {**info["be_actual"], **backend},
        "osparams": {**values.osparams, **(options.osparams or {})},
        "start": info["config_state"] == "up",
        "compress": options.compress,
    }


def _disk(disk: Mapping[str, Any]) -> dict[str, Any]:
    found = {"size": disk["size"], "mode": disk["mode"]}
    if disk["name"]:
        found["name"] = disk["name"]
    return found


def _nic(nic: Sequence[Any]) -> dict[str, Any]:
    name, _uuid, ip, mac, mode, link, vlan, _network_uuid, network = nic
    found: dict[str, Any] = {"mac": mac, "ip": ip, "name": name}
    if network:
        found["network"] = network if isinstance(network, str) else network["name"]
    else:
        found |= {"mode": mode, "link": link, "vlan": vlan}
    return {key: value for key, value in found.items() if value}


class Mover:
    """Moves one instance.

    :param say: called with each line of progress.
    """

    def __init__(
        self,
        source: rapi.GanetiRapiClient,
        destination: rapi.GanetiRapiClient,
        options: MoveOptions,
        say: Callable[[str], None],
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._source = source
        self._destination = destination
        self._options = options
        self._say = say
        self._sleep = sleep

    def move(self, name: str) -> None:
        """Move an instance.

        :raises MoveError: a job failed, or the instance has no disks.
        """
        info = self._info(name)
        if not info["disks"]:
            raise MoveError(
                f"instance {info['name']} has no disks. Create it on the destination instead."
            )
        values = self._taken(info)
        name = info["name"]
        prepared = self._result(self._source, self._source.PrepareExport(name, _REMOTE), "source")
        # The preparation has measured the disks.
        info = self._info(name)
        wanted = specification(info, self._options, values)
        # Kept on the source, the instance is to run in both clusters.
        hand_over = wanted["start"] and not self._options.keep
        if hand_over:
            wanted["start"] = False
        importing, announced = self._create(name, wanted, prepared)
        self._say(f"job {importing} of the destination waits for the disks")
        try:
            if hand_over:
                # Marked down, so that the source does not start it again after the export.
                self._result(self._source, self._source.ShutdownInstance(name), "source")
            self._send(name, prepared, announced, importing)
        except (MoveError, rapi.Error):
            # The new instance is not started without us, so the old one may run in any case. The
            # original leaves an instance stopped whose export has failed.
            if info["config_state"] == "up":
                self._start_again(name)
            raise
        if not self._options.keep:
            self._take_over(name, wanted["name"], start=hand_over)
        self._say(f"instance {wanted['name']} is complete")

    def plan(self, name: str) -> list[str]:
        """Find out whether an instance can be moved, as far as that is known without a change.

        :returns: lines about the new instance, for the user.
        :raises MoveError: values of the source are refused.
        """
        info = self._info(name)
        values = self._taken(info)
        wanted = specification(info, self._options, values)
        lines = [
            f"instance {wanted['name']}: OS {wanted['os_type']}, hypervisor {wanted['hypervisor']},"
            f" disk template {wanted['disk_template']}, disks {len(wanted['disks'])}"
        ]
        for kind in ("hvparams", "beparams", "osparams"):
            if wanted[kind]:
                shown = ", ".join(f"{key}={value!r}" for key, value in wanted[kind].items())
                lines.append(f"{kind}: {shown}")
        lines += [f"interface {number}: {nic}" for number, nic in enumerate(wanted["nics"])]
        return lines + description.accepted_notes(values)

    def _taken(self, info: Mapping[str, Any]) -> Taken:
        """Decide what is taken of what the source says.

        :raises MoveError: values are refused.
        """
        try:
            values = taken(info, self._options, self._destination.GetInfo())
            description.require(
                f"the source cluster's description of instance {info['name']}", values.refused
            )
        except errors.OpPrereqError as err:
            raise MoveError(str(err.args[0])) from err
        for note in description.accepted_notes(values):
            self._say(note)
        return values

    def clean_up(self, name: str) -> str:
        """Find out how an interrupted move has ended, and remove an incomplete new instance.

        An instance is removed only from the destination, only if the job which failed to import it
        has made it, and only if the source still has the old one. The instance of the source is
        never changed.

        :returns: what was found and done, for the user.
        :raises MoveError: the move is not over, or the user has to decide; nothing was changed.
        """
        old = _instance(self._source, name)
        name = old["name"] if old is not None else name
        new_name = self._options.name or name
        new = _instance(self._destination, new_name)
        imports = _jobs_of(
            self._destination,
            "OP_INSTANCE_CREATE",
            mode="remote-import",
            instance_name=new_name,
            source_instance_name=name,
        )
        exports = _jobs_of(self._source, "OP_BACKUP_EXPORT", mode=_REMOTE, instance_name=name)
        for jobs, side in ((imports, "destination"), (exports, "source")):
            for job in jobs:
                if job["status"] not in rapi.JOB_STATUS_FINALIZED:
                    raise MoveError(
                        f"job {job['id']} of the {side} has not ended. Wait for it, or cancel it"
                        f" with 'gnt-job cancel {job['id']}'. Nothing was changed."
                    )
        if new is None:
            return self._nothing_there(name, new_name, old)
        if not imports:
            raise MoveError(
                f"the destination has an instance {new_name}, but no job in its queue which has"
                " moved it there. Nothing was changed."
            )
        return self._judge(imports[-1], name, old, new)

    def _nothing_there(self, name: str, new_name: str, old: Mapping[str, Any] | None) -> str:
        if old is None:
            raise MoveError(f"neither the source nor the destination has instance {name}")
        return f"the destination has no instance {new_name}; {_of_source(old)}"

    def _judge(
        self,
        job: Mapping[str, Any],
        name: str,
        old: Mapping[str, Any] | None,
        new: Mapping[str, Any],
    ) -> str:
        """Decide by the last job which has imported the instance.

        :raises MoveError: as for :meth:`clean_up`.
        """
        new_name = new["name"]
        complete = job["status"] == rapi.JOB_STATUS_SUCCESS
        if complete and old is None:
            return f"instance {new_name} is complete on the destination"
        if complete:
            raise MoveError(
                f"instance {new_name} is complete on the destination, and instance {name} still"
                " exists on the source. Start the new one unless it runs, make sure that it is"
                " good, then remove the old one. Nothing was changed."
            )
        made = _seconds(job["start_ts"]) <= new["ctime"] <= _seconds(job["end_ts"])
        if old is None or not made or new["oper_state"]:
            reason = (
                "the source has no instance any more"
                if old is None
                else "it runs"
                if made
                else f"job {job['id']}, which failed to import it, has not made it"
            )
            raise MoveError(
                f"instance {new_name} on the destination may be incomplete, and is not removed,"
                f" because {reason}. Nothing was changed."
            )
        self._say(f"removing the incomplete instance {new_name} from the destination")
        removal = self._destination.DeleteInstance(new_name)
        self._result(self._destination, removal, "destination")
        return (
            f"the incomplete instance {new_name} was removed from the destination;"
            f" {_of_source(old)}"
        )

    def _info(self, name: str) -> Mapping[str, Any]:
        job = self._source.GetInstanceInfo(name, static=True)
        (info,) = self._result(self._source, job, "source").values()
        return dict(info)

    def _send(
        self,
        name: str,
        prepared: Mapping[str, Any],
        announced: Announcement,
        importing: int,
    ) -> None:
        """Send the disks.

        :param importing: the job of the destination which receives them.
        :raises MoveError: a job failed; the message contains the reasons of both clusters.
        """
        exporting = self._source.ExportInstance(
            name,
            _REMOTE,
            announced["disks"],
            shutdown=True,
            remove_instance=False,
            x509_key_name=prepared["x509_key_name"],
            destination_x509_ca=announced["x509_ca"],
            compress=self._options.compress,
        )
        self._say(f"job {exporting} of the source sends the disks")
        failures = []
        for client, job, side in (
            (self._source, exporting, "source"),
            (self._destination, importing, "destination"),
        ):
            try:
                self._result(client, job, side)
            except MoveError as err:
                failures.append(str(err))
        if failures:
            raise MoveError("; ".join(failures))

    def _start_again(self, name: str) -> None:
        """Start the instance on the source after a failure, which this must not hide."""
        try:
            self._result(self._source, self._source.StartupInstance(name), "source")
        except (MoveError, rapi.Error) as err:
            self._say(f"instance {name} stays stopped on the source: {err}")

    def _take_over(self, name: str, new_name: str, *, start: bool) -> None:
        """Let the complete instance on the destination take the place of the one on the source.

        :raises MoveError: it does not start, or the one on the source cannot be removed.
        """
        try:
            if start:
                started = self._destination.StartupInstance(new_name)
                self._result(self._destination, started, "destination")
            self._result(self._source, self._source.DeleteInstance(name), "source")
        except (MoveError, rapi.Error) as err:
            raise MoveError(
                f"instance {new_name} is complete on the destination, and instance {name} still"
                f" exists on the source, stopped: {err}. Start the new one, make sure that it is"
                " good, then remove the old one."
            ) from err

    def _create(
        self, name: str, wanted: dict[str, Any], prepared: Mapping[str, Any]
    ) -> tuple[int, Announcement]:
        """Create the instance on the destination; returns the job, and where it receives disks."""
        first = ("name", "disk_template", "disks", "nics")
        others: dict[str, Any] = {
            **{
                key: value
                for key, value in wanted.items()
                if key not in first and value is not None
            },
            "source_handshake": prepared["handshake"],
            "source_x509_ca": prepared["x509_ca"],
            "source_instance_name": name,
        }
        for attempt in range(self._options.tries + 1):
            # The last attempt waits for other jobs of the destination.
            opportunistic = attempt < self._options.tries
            if opportunistic:
                others["opportunistic_locking"] = True
            else:
                others.pop("opportunistic_locking", None)
            job = self._destination.CreateInstance(
                "remote-import", *(wanted[key] for key in first), **others
            )
            announced = self._wait_for_announcement(job)
            if announced is not None:
                return job, announced
            try:
                self._result(self._destination, job, "destination")
            except JobFailed as err:
                if not opportunistic or err.ecode != errors.ECODE_TEMP_NORES:
                    raise
                self._say(
                    "the destination has no free nodes at the moment; the next attempt is in"
                    f" {self._options.delay_s:g} s"
                )
                self._sleep(self._options.delay_s)
        raise MoveError(
            f"job {job} of the destination did not announce where it receives the disks"
        )

    def _wait_for_announcement(self, job: int) -> Announcement | None:
        """Return where the destination receives the disks; None if the job ended before."""
        info: Sequence[Any] | None = None
        serial: int | None = None
        while True:
            found = self._destination.WaitForJobChange(job, ["status"], info, serial)
            if found is None:
                continue
            info = found["job_info"]
            for entry in found["log_entries"] or ():
                serial = max(serial or 0, entry[0])
                if entry[2] == _ANNOUNCEMENT:
                    announced: Announcement = entry[3]
                    return announced
                self._say(f"destination: {entry[3]}")
            if info[0] in rapi.JOB_STATUS_FINALIZED:
                return None

    def _result(self, client: rapi.GanetiRapiClient, job: int, side: str) -> Any:
        """Wait until a job has ended, and return the result of its last opcode.

        :param side: "source" or "destination", for the message.
        :raises JobFailed: the job failed.
        """
        info: Sequence[Any] | None = None
        serial: int | None = None
        while info is None or info[0] not in rapi.JOB_STATUS_FINALIZED:
            found = client.WaitForJobChange(job, ["status"], info, serial)
            if found is not None:
                info = found["job_info"]
                serial = max([serial or 0, *(entry[0] for entry in found["log_entries"] or ())])
        status = client.GetJobStatus(job)
        result = status["opresult"][-1]
        if status["status"] == rapi.JOB_STATUS_SUCCESS:
            return result
        reason, ecode = _decode_error(result)
        raise JobFailed(f"job {job} of the {side} has failed: {reason}", ecode)


def _instance(client: rapi.GanetiRapiClient, name: str) -> Mapping[str, Any] | None:
    """Return the description of an instance; None if the cluster does not have it."""
    try:
        return client.GetInstance(name)
    except rapi.GanetiApiError as err:
        if err.code != _NOT_FOUND:
            raise
        return None


def _jobs_of(client: rapi.GanetiRapiClient, op_id: str, **fields: str) -> list[Mapping[str, Any]]:
    """Return the jobs in the queue with such an opcode, the oldest first."""
    wanted = {"OP_ID": op_id, **fields}.items()
    found = [
        job
        for job in client.GetJobs(bulk=True)
        if any(all(op.get(key) == value for key, value in wanted) for op in job["ops"])
    ]
    return sorted(found, key=lambda job: int(job["id"]))


def _seconds(stamp: Sequence[int] | None) -> float:
    return stamp[0] + stamp[1] / 1e6 if stamp else 0.0


def _of_source(old: Mapping[str, Any]) -> str:
    text = f"instance {old['name']} of the source is unchanged, and marked {old['admin_state']}"
    if old["admin_state"] == "up":
        return text
    return f"{text}. If it shall run, use 'gnt-instance startup {old['name']}' there"


def _decode_error(result: Any) -> tuple[str, str | None]:
    """Return the text of an encoded error, and its error code if it has one."""
    if isinstance(result, list) and len(result) == 2 and isinstance(result[1], list):
        args = result[1]
        # OpPrereqError and similar errors: message and error code.
        ecode = args[1] if len(args) == 2 and isinstance(args[1], str) else None
        return ", ".join(str(part) for part in args), ecode
    return str(result), None


# -- the program ---------------------------------------------------------------------------------


def make_parser() -> argparse.ArgumentParser:
    """Describe the options of the program."""
    parser = argparse.ArgumentParser(
        prog="move-instance",
        description="Move instances to another cluster through the REST daemons of both clusters."
        " Both clusters must have the same domain secret; see gnt-backup(8).",
    )
    _add_cluster_options(parser)
    _add_instance_options(parser)
    _add_transfer_options(parser)
    parser.add_argument("-v", "--verbose", action="store_true", help="print the progress")
    parser.add_argument("-d", "--debug", action="count", default=0, help="print debug messages")
    return parser


def _add_cluster_options(parser: argparse.ArgumentParser) -> None:
    """Add the clusters, how they are reached, and the instances to move."""
    add = parser.add_argument
    add("source", help="name of the cluster to move from")
    add("destination", help="name of the cluster to move to")
    add("instances", nargs="+", metavar="instance")
    for side, what in (("src", "source"), ("dest", "destination")):
        same = "" if side == "src" else " (default: the same as for the source)"
        add(f"--{side}-rapi-port", type=int, help=f"port of the REST daemon of the {what}{same}")
        add(
            f"--{side}-ca-file",
            metavar="FILE",
            help=f"file with the certificate of the {what}, or of the authority that signed it",
        )
        add(f"--{side}-username", help=f"user of the REST interface of the {what}{same}")
        add(
            f"--{side}-password-file",
            metavar="FILE",
            help=f"file with the password of that user{same}",
        )


def _add_instance_options(parser: argparse.ArgumentParser) -> None:
    """Add what changes of an instance when it comes to the other cluster."""
    add = parser.add_argument
    add("--dest-instance-name", metavar="NAME", help="new name of the instance")
    add("--dest-primary-node", metavar="NODE", help="new primary node")
    add("--dest-secondary-node", metavar="NODE", help="new secondary node")
    add("--dest-disk-template", metavar="TEMPLATE", help="new disk template")
    add(
        "-I",
        "--iallocator",
        metavar="NAME",
        help="allocator of the destination which chooses the nodes",
    )
    add(
        "-B",
        "--backend-parameters",
        dest="beparams",
        metavar="KEY=VALUE,...",
        type=for_argparse(value_types.parse_keyval),
        default={},
        help="backend parameters that change",
    )
    add(
        "-H",
        "--hypervisor-parameters",
        dest="hypervisor",
        metavar="HYPERVISOR[:KEY=VALUE,...]",
        type=for_argparse(_identkeyval),
        help="new hypervisor, and hypervisor parameters that change",
    )
    add(
        "-O",
        "--os-parameters",
        dest="osparams",
        metavar="KEY=VALUE,...",
        type=for_argparse(value_types.parse_keyval),
        default={},
        help="OS parameters that change",
    )
    add("-o", "--os-type", metavar="OS", help="new OS definition, with its variant")
    add(
        description.OPTION,
        metavar="NAME,...",
        default="",
        help="take these values of the source, although they name things of a node: os,"
        " os/PARAMETER, hypervisor, a hypervisor parameter, nic/link, nic/mode, nic/vlan,"
        " nic/network",
    )
    add(
        "--net",
        dest="nics",
        action="append",
        metavar="N:KEY=VALUE,...",
        type=for_argparse(_identkeyval),
        default=[],
        help="parameters of network interface N that change",
    )


def _add_transfer_options(parser: argparse.ArgumentParser) -> None:
    """Add how the instances are moved."""
    add = parser.add_argument
    add(
        "--compress",
        default="none",
        metavar="TOOL",
        help="compression tool for the transfer; both clusters must allow it",
    )
    add(
        "-p",
        "--parallel",
        type=int,
        default=1,
        metavar="<number>",
        help="number of instances which are moved at the same time (default: 1)",
    )
    add(
        "--opportunistic-tries",
        type=int,
        default=0,
        metavar="<number>",
        help="number of attempts which consider only nodes that no other job uses at the moment",
    )
    add(
        "--opportunistic-delay",
        type=int,
        default=30,
        metavar="<number>",
        help="seconds between two such attempts (default: 30)",
    )
    add(
        "--keep-source-instance",
        action="store_true",
        help="do not remove the instance from the source",
    )
    add(
        "--dry-run",
        action="store_true",
        help="only show the new instance, and which values of the source are taken or refused",
    )
    add(
        "--cleanup",
        action="store_true",
        help="only find out how an interrupted move has ended, and remove an incomplete instance"
        " from the destination",
    )


def parse_options(argv: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = make_parser()
    options = parser.parse_args(argv)
    if options.parallel < 1 or options.opportunistic_tries < 0 or options.opportunistic_delay < 0:
        parser.error(
            "--parallel must be 1 or more, and the --opportunistic options must not be negative"
        )
    if len(options.instances) > 1:
        for name in ("dest_instance_name", "dest_primary_node", "dest_secondary_node"):
            if getattr(options, name):
                parser.error(f"--{name.replace('_', '-')} works with one instance only")
    if options.dry_run and options.cleanup:
        parser.error("--dry-run and --cleanup exclude each other")
    if options.iallocator and options.dest_primary_node:
        parser.error("--iallocator and --dest-primary-node exclude each other")
    if options.opportunistic_tries and not options.iallocator:
        parser.error("--opportunistic-tries needs --iallocator")
    return options


def _identkeyval(text: str) -> tuple[str, dict[str, Any]]:
    ident, params = value_types.parse_identkeyval(text)
    if not isinstance(params, dict):
        raise errors.ParameterError(f"'{text}' removes an item, and only values can be given")
    return ident, params


def move_options(options: argparse.Namespace) -> MoveOptions:
    """Convert the options of the command line; values get their types.

    :raises errors.GenericError: a parameter does not exist, or its value is wrong.
    """
    hypervisor, params = options.hypervisor or (None, {})
    nics = {}
    for ident, changes in options.nics:
        if not ident.isdecimal():
            raise errors.ParameterError(
                f"--net {ident}: '{ident}' is not the number of an interface"
            )
        nics[int(ident)] = changes
    return MoveOptions(
        name=options.dest_instance_name,
        primary_node=options.dest_primary_node,
        secondary_node=options.dest_secondary_node,
        disk_template=options.dest_disk_template,
        iallocator=options.iallocator,
        hypervisor=hypervisor,
        hvparams=value_types.typed_params(params, hvparams.TYPES),
        beparams=value_types.typed_params(options.beparams, BE_PARAM_TYPES_WITH_MEMORY),
        osparams=options.osparams,
        nics=nics,
        os_type=options.os_type,
        accepted=[name for name in options.accept_from_description.split(",") if name],
        compress=options.compress,
        keep=options.keep_source_instance,
        tries=options.opportunistic_tries,
        delay_s=options.opportunistic_delay,
    )


def logins_of(options: argparse.Namespace) -> tuple[Login, Login]:
    """Return address and credentials of the source and of the destination.

    :raises OSError: a password file cannot be read.
    """
    port = options.src_rapi_port or rapi.GANETI_RAPI_PORT
    password = _password(options.src_password_file)
    source = Login(options.source, port, options.src_ca_file, options.src_username, password)
    other = options.dest_password_file
    return source, Login(
        options.destination,
        options.dest_rapi_port or port,
        options.dest_ca_file,
        options.dest_username or options.src_username,
        _password(other) if other else password,
    )


def _password(path: str | None) -> str | None:
    if path is None:
        return None
    with open(path, encoding="utf-8") as stream:
        return stream.readline().strip()


@rapi.UsesRapiClient
def main(argv: Sequence[str] | None = None) -> int:
    """Move all instances; returns 1 if an instance could not be moved."""
    options = parse_options(sys.argv[1:] if argv is None else argv)
    level = logging.DEBUG if options.debug else logging.INFO if options.verbose else logging.WARNING
    logging.basicConfig(level=level, format="%(asctime)s %(message)s", stream=sys.stderr)
    try:
        wanted, (source, destination) = move_options(options), logins_of(options)
    except (errors.GenericError, OSError) as err:
        terminal.err(f"move-instance: {err}")
        return EXIT_FAILURE

    def move(name: str) -> str | None:
        mover = Mover(
            source.connect(),
            destination.connect(),
            wanted,
            lambda line: log.info("%s: %s", name, terminal.shown(line)),
        )
        try:
            if options.dry_run:
                for line in mover.plan(name):
                    terminal.out(terminal.shown(line))
            elif options.cleanup:
                terminal.out(f"Instance {name}: {terminal.shown(mover.clean_up(name))}.")
            else:
                mover.move(name)
        except (rapi.Error, MoveError) as err:
            return str(err)
        return None

    with ThreadPoolExecutor(options.parallel) as pool:
        problems = list(pool.map(move, options.instances))
    for name, problem in zip(options.instances, problems, strict=True):
        if problem is None and (options.cleanup or options.dry_run):
            continue
        if options.cleanup:
            terminal.err(f"Instance {name} was not cleaned up: {problem}")
        elif problem is None:
            terminal.out(f"Instance {name} was moved to {options.destination}.")
        else:
            terminal.err(f"Instance {name} was not moved: {problem}")
    return EXIT_FAILURE if any(problems) else EXIT_SUCCESS


if __name__ == "__main__":
    sys.exit(main())
