"""Moves instances to another cluster; the program ``move-instance``.

It is the third party between two clusters which share a domain secret (seed 003 *Inter-cluster
instance moves*): it speaks to the REST daemons of both, carries signed texts from one to the other,
and needs neither the secret nor access to any node. Data go from node to node directly.

For each instance: the source prepares a key; the destination creates the instance and says where
it awaits the disks; the source stops the instance and sends them. When both have succeeded the
source's instance is gone (unless it is to be kept) and the new one runs if the old one did. When
something fails the source's instance is as it was, and nothing is left on the destination.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from ganeti import errors
from ganeti.cli import values as value_types
from ganeti.constants.instance import BE_PARAM_TYPES_WITH_MEMORY
from ganeti.objects import hvparams
from ganeti.rapi import client as rapi

EXIT_SUCCESS: Final = 0
EXIT_FAILURE: Final = 1

#: The type of the log entry in which the destination says where it awaits the disks.
_ANNOUNCEMENT: Final = "remote-import"
_TEMPORARY: Final = "temp_insufficient_resources"
_REMOTE: Final = "remote"

log = logging.getLogger("move-instance")


class MoveError(errors.GenericError):
    """An instance could not be moved; says what is left where."""


@dataclass(frozen=True, slots=True)
class Login:
    """How to reach the REST daemon of a cluster."""

    host: str
    port: int
    ca_file: str | None
    username: str | None
    password: str | None

    def connect(self) -> rapi.GanetiRapiClient:
        """A client of its own for each thread."""
        config = rapi.GenericCurlConfig(cafile=self.ca_file) if self.ca_file else None
        return rapi.GanetiRapiClient(
            self.host,
            port=self.port,
            username=self.username,
            password=self.password,
            curl_config_fn=config,
        )


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the user wants to be different on the destination."""

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
    compress: str = "none"
    keep: bool = False
    tries: int = 0
    delay_s: float = 0


def specification(info: Mapping[str, Any], wishes: Wishes) -> dict[str, Any]:
    """The new instance, as the destination's REST daemon takes it.

    :param info: what the source says of the old one.
    """
    hypervisor = wishes.hypervisor or info["hypervisor"]
    inherited = info["hv_instance"] if hypervisor == info["hypervisor"] else {}
    backend = dict(wishes.beparams or {})
    if "memory" in backend:
        backend["minmem"] = backend["maxmem"] = backend.pop("memory")
    # Defaults of the two clusters may differ; the instance shall be as it was.
    return {
        "name": wishes.name or info["name"],
        "disk_template": wishes.disk_template or info["disk_template"],
        "disks": [_disk(disk) for disk in info["disks"]],
        "nics": [
            {**_nic(nic), **(wishes.nics or {}).get(index, {})}
            for index, nic in enumerate(info["nics"])
        ],
        "os_type": info["os"],
        "pnode": wishes.primary_node,
        "snode": wishes.secondary_node,
        "iallocator": wishes.iallocator,
        "hypervisor": hypervisor,
        "hvparams": {**inherited, **(wishes.hvparams or {})},
        "beparams": {**info["be_actual"], **backend},
        "osparams": {**info["os_instance"], **(wishes.osparams or {})},
        "start": info["config_state"] == "up",
        "compress": wishes.compress,
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

    :param say: told what happens, a line each.
    """

    def __init__(
        self,
        source: rapi.GanetiRapiClient,
        destination: rapi.GanetiRapiClient,
        wishes: Wishes,
        say: Callable[[str], None],
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._source = source
        self._destination = destination
        self._wishes = wishes
        self._say = say
        self._sleep = sleep

    def move(self, name: str) -> None:
        """Move an instance.

        :raises MoveError: with what each side says.
        """
        info = self._result(self._source, self._source.GetInstanceInfo(name, static=True), "source")
        (info,) = info.values()
        if not info["disks"]:
            raise MoveError(f"instance {info['name']} has no disks; create it anew")
        name = info["name"]
        prepared = self._result(self._source, self._source.PrepareExport(name, _REMOTE), "source")
        wanted = specification(info, self._wishes)
        importing, told = self._announcement(name, wanted, prepared)
        self._say(f"job {importing} of the destination waits for the disks")
        exporting = self._source.ExportInstance(
            name,
            _REMOTE,
            told["disks"],
            shutdown=True,
            remove_instance=not self._wishes.keep,
            x509_key_name=prepared["x509_key_name"],
            destination_x509_ca=told["x509_ca"],
            compress=self._wishes.compress,
        )
        self._say(f"job {exporting} of the source sends them")
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
        self._say(f"instance {wanted['name']} is complete")

    def _announcement(
        self, name: str, wanted: dict[str, Any], prepared: Mapping[str, Any]
    ) -> tuple[int, Mapping[str, Any]]:
        """Create the instance; its job, and where it awaits the disks."""
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
        for attempt in range(self._wishes.tries + 1):
            # The last time other work on the destination is waited for.
            opportunistic = attempt < self._wishes.tries
            if opportunistic:
                others["opportunistic_locking"] = True
            else:
                others.pop("opportunistic_locking", None)
            job = self._destination.CreateInstance(
                "remote-import", *(wanted[key] for key in first), **others
            )
            told = self._wait_for_announcement(job)
            if told is not None:
                return job, told
            try:
                self._result(self._destination, job, "destination")
            except MoveError as err:
                if not opportunistic or _TEMPORARY not in str(err):
                    raise
                self._say(
                    f"the destination has no free nodes at the moment; again in"
                    f" {self._wishes.delay_s:g} s"
                )
                self._sleep(self._wishes.delay_s)
        raise MoveError(f"job {job} of the destination did not say where it awaits the disks")

    def _wait_for_announcement(self, job: int) -> Mapping[str, Any] | None:
        """None when the job ended without."""
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
                    told: Mapping[str, Any] = entry[3]
                    return told
                self._say(f"destination: {entry[3]}")
            if info[0] in rapi.JOB_STATUS_FINALIZED:
                return None

    def _result(self, client: rapi.GanetiRapiClient, job: int, side: str) -> Any:
        """The result of a job, once it has ended.

        :raises MoveError: it failed.
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
        raise MoveError(f"job {job} of the {side} has failed: {_reason(result)}")


def _reason(result: Any) -> str:
    """What an encoded error says."""
    if isinstance(result, list) and len(result) == 2 and isinstance(result[1], list):
        return ", ".join(str(part) for part in result[1])
    return str(result)


# -- the program ---------------------------------------------------------------------------------


def parse_options(argv: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="move-instance",
        description="Move instances to another cluster, over the REST"
        " daemons of both. Both clusters need the same domain secret; see gnt-backup(8).",
    )
    parser.add_argument("source", help="name of the cluster to move from")
    parser.add_argument("destination", help="name of the cluster to move to")
    parser.add_argument("instances", nargs="+", metavar="instance")
    for side, what in (("src", "source"), ("dest", "destination")):
        same = "" if side == "src" else "; as for the source if not given"
        parser.add_argument(f"--{side}-rapi-port", type=int, help=f"port of the {what}{same}")
        parser.add_argument(
            f"--{side}-ca-file",
            metavar="FILE",
            help=f"certificate by which the {what} proves who it is",
        )
        parser.add_argument(f"--{side}-username", help=f"user on the {what}{same}")
        parser.add_argument(
            f"--{side}-password-file", metavar="FILE", help=f"file with the password{same}"
        )
    parser.add_argument("--dest-instance-name", metavar="NAME", help="another name there")
    parser.add_argument("--dest-primary-node", metavar="NODE")
    parser.add_argument("--dest-secondary-node", metavar="NODE")
    parser.add_argument("--dest-disk-template", metavar="TEMPLATE")
    parser.add_argument(
        "-I",
        "--iallocator",
        metavar="NAME",
        help="allocator of the destination that chooses the nodes",
    )
    parser.add_argument(
        "-B",
        "--backend-parameters",
        dest="beparams",
        metavar="KEY=VALUE,...",
        type=_keyval,
        default={},
    )
    parser.add_argument(
        "-H",
        "--hypervisor-parameters",
        dest="hypervisor",
        metavar="HYPERVISOR[:KEY=VALUE,...]",
        type=_identkeyval,
    )
    parser.add_argument(
        "-O", "--os-parameters", dest="osparams", metavar="KEY=VALUE,...", type=_keyval, default={}
    )
    parser.add_argument(
        "--net",
        dest="nics",
        action="append",
        metavar="N:KEY=VALUE,...",
        type=_identkeyval,
        default=[],
        help="what is different for interface N",
    )
    parser.add_argument(
        "--compress",
        default="none",
        metavar="TOOL",
        help="compression tool which both clusters have",
    )
    parser.add_argument(
        "-p", "--parallel", type=int, default=1, metavar="<number>", help="so many at the same time"
    )
    parser.add_argument(
        "--opportunistic-tries",
        type=int,
        default=0,
        metavar="<number>",
        help="so often only nodes which are free at the moment are considered",
    )
    parser.add_argument(
        "--opportunistic-delay",
        type=int,
        default=30,
        metavar="<number>",
        help="seconds between such tries",
    )
    parser.add_argument(
        "--keep-source-instance",
        action="store_true",
        help="do not remove the instance from the source",
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="say what happens")
    parser.add_argument("-d", "--debug", action="count", default=0)
    options = parser.parse_args(argv)
    if options.parallel < 1 or options.opportunistic_tries < 0 or options.opportunistic_delay < 0:
        parser.error("numbers must not be negative")
    if len(options.instances) > 1:
        for name in ("dest_instance_name", "dest_primary_node", "dest_secondary_node"):
            if getattr(options, name):
                parser.error(f"--{name.replace('_', '-')} is for one instance only")
    if options.iallocator and options.dest_primary_node:
        parser.error("give either a node or an allocator")
    if options.opportunistic_tries and not options.iallocator:
        parser.error("--opportunistic-tries needs --iallocator")
    return options


def _keyval(text: str) -> dict[str, Any]:
    try:
        return value_types.parse_keyval(text)
    except errors.ParameterError as err:
        raise argparse.ArgumentTypeError(str(err)) from err


def _identkeyval(text: str) -> tuple[str, dict[str, Any]]:
    try:
        ident, params = value_types.parse_identkeyval(text)
    except errors.ParameterError as err:
        raise argparse.ArgumentTypeError(str(err)) from err
    if not isinstance(params, dict):
        raise argparse.ArgumentTypeError(f"'{text}' removes something, which is wrong here")
    return ident, params


def wishes_of(options: argparse.Namespace) -> Wishes:
    """The options as wishes, values in their types.

    :raises errors.GenericError: a parameter that does not exist, or a wrong value.
    """
    hypervisor, params = options.hypervisor or (None, {})
    nics = {}
    for ident, changes in options.nics:
        if not ident.isdecimal():
            raise errors.ParameterError(f"--net {ident}: not the number of an interface")
        nics[int(ident)] = changes
    return Wishes(
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
        compress=options.compress,
        keep=options.keep_source_instance,
        tries=options.opportunistic_tries,
        delay_s=options.opportunistic_delay,
    )


def logins_of(options: argparse.Namespace) -> tuple[Login, Login]:
    """How to reach both clusters.

    :raises OSError: a password cannot be read.
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
    """Move all instances; the exit code says whether all arrived."""
    options = parse_options(sys.argv[1:] if argv is None else argv)
    level = logging.DEBUG if options.debug else logging.INFO if options.verbose else logging.WARNING
    logging.basicConfig(level=level, format="%(asctime)s %(message)s", stream=sys.stderr)
    try:
        wishes, (source, destination) = wishes_of(options), logins_of(options)
    except (errors.GenericError, OSError) as err:
        sys.stderr.write(f"move-instance: {err}\n")
        return EXIT_FAILURE

    def move(name: str) -> str | None:
        mover = Mover(
            source.connect(),
            destination.connect(),
            wishes,
            lambda line: log.info("%s: %s", name, line),
        )
        try:
            mover.move(name)
        except (rapi.Error, MoveError) as err:
            return str(err)
        return None

    with ThreadPoolExecutor(options.parallel) as pool:
        problems = list(pool.map(move, options.instances))
    for name, problem in zip(options.instances, problems, strict=True):
        if problem is None:
            sys.stdout.write(f"Instance {name} was moved to {options.destination}.\n")
        else:
            sys.stderr.write(f"Instance {name} was not moved: {problem}\n")
    return EXIT_FAILURE if any(problems) else EXIT_SUCCESS


if __name__ == "__main__":
    sys.exit(main())
