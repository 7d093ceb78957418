"""The program ``sanitize-config``: prints a configuration without secrets, names and addresses.

The result can be shown to others, for example in a report of an error, or used for tests.
References between objects remain valid, so the result can be loaded and has no contradictions.

Secrets are always replaced: secrets of DRBD, private parameters of operating systems, host keys,
digests of certificates, and URLs of images, which may contain a password. Names, addresses, logical
volumes and names of operating systems are replaced according to the options. UUIDs are kept,
because they do not name anything outside the cluster.
"""

from __future__ import annotations

import argparse
import ipaddress
import secrets
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

from ganeti import errors
from ganeti.config import upgrade
from ganeti.constants import cli as exit_codes
from ganeti.constants import disk as disk_const
from ganeti.platform import paths
from ganeti.tools import config_files
from ganeti.wire import json

_NO_SECRET: Final = "sanitized"
_DIGEST: Final = ":".join(["00"] * 20)
_YES: Final = {"yes": True, "true": True, "no": False, "false": False}


class Replacements:
    """New texts for old ones; the same text gets the same replacement during one run.

    :param make: makes a new text from the number of the value.
    """

    def __init__(self, make: Callable[[int], str]) -> None:
        self._make = make
        self._known: dict[str, str] = {}

    def __call__(self, value: str) -> str:
        if not value:
            return value
        found = self._known.get(value)
        if found is None:
            found = self._known[value] = self._make(len(self._known) + 1)
        return found

    def items(self) -> list[tuple[str, str]]:
        """List all old texts with their replacements, the longest old text first."""
        return sorted(self._known.items(), key=lambda item: -len(item[0]))


class Sanitizer:
    """Replaces secrets, names and addresses in a copy of a configuration of this version.

    :param names: replace names of objects, and tags.
    :param ips: replace IP and MAC addresses.
    :param lvs: replace names of logical volumes and volume groups.
    :param os_names: replace names of operating systems.
    :param randomize: make random names, which do not show the number of objects; otherwise the new
        names are numbered.
    :param domain: domain of the new names.
    """

    def __init__(
        self, *, names: bool, ips: bool, lvs: bool, os_names: bool, randomize: bool, domain: str
    ) -> None:
        self._names, self._ips, self._lvs, self._os_names = names, ips, lvs, os_names

        def label(word: str, suffix: str = "") -> Callable[[int], str]:
            taken: set[str] = set()

            def make(number: int) -> str:
                while randomize:
                    made = f"{word}-{secrets.token_hex(4)}{suffix}"
                    if made not in taken:
                        taken.add(made)
                        return made
                return f"{word}{number}{suffix}"

            return make

        self._node = Replacements(label("node", f".{domain}"))
        self._instance = Replacements(label("instance", f".{domain}"))
        self._group = Replacements(label("group"))
        self._network = Replacements(label("network"))
        self._tag = Replacements(label("tag"))
        self._part = Replacements(label("part"))
        self._vg = Replacements(label("vg"))
        self._lv = Replacements(label("lv"))
        self._os = Replacements(label("os"))
        self._variant = Replacements(label("variant"))
        self._cluster_name = f"cluster.{domain}"
        self._addresses = _Addresses()
        self._mac_numbers: dict[str, int] = {}

    def sanitize(self, config: dict[str, Any]) -> dict[str, Any]:
        """Return the sanitized copy of a configuration."""
        made: dict[str, Any] = json.loads(json.dumps(config))
        if self._ips:
            for network in made["networks"].values():
                self._addresses.note(network.get("network"))
        # Names come first, because later steps replace them in other texts.
        if self._names:
            self._replace_names(made)
        self._cluster(made["cluster"])
        for node in made["nodes"].values():
            for key in ("primary_ip", "secondary_ip"):
                self._address(node, key)
            _set(node["ndparams"], "oob_program", _NO_SECRET if self._names else None)
        for network in made["networks"].values():
            for key in ("network", "gateway", "network6", "gateway6"):
                self._address(network, key)
            if self._ips:
                # They would not be in the IPv6 network any more.
                network.pop("ext_reservations6", None)
        for instance in made["instances"].values():
            self._one_instance(instance)
        for disk in made["disks"].values():
            self._device(disk)
        for group in made["nodegroups"].values():
            self._metavg(group["diskparams"])
        for rule in made["filters"].values():
            rule["reason_trail"] = []
        # Programs keep in documents what they want; a cluster works without them.
        made.pop("documents", None)
        # They concern the users of the REST interface, who are not in the configuration.
        made.pop("access_records", None)
        return made

    def _replace_names(self, made: dict[str, Any]) -> None:
        made["cluster"]["cluster_name"] = self._cluster_name
        tables = (
            ("nodes", self._node),
            ("instances", self._instance),
            ("nodegroups", self._group),
            ("networks", self._network),
        )
        for kind, names in tables:
            for item in made[kind].values():
                item["name"] = names(item["name"])
        for item in (
            made["cluster"],
            *(item for kind, _names in tables for item in made[kind].values()),
        ):
            if item.get("tags"):
                item["tags"] = sorted(self._tag(tag) for tag in item["tags"])
        parts = [
            *made["disks"].values(),
            *(nic for item in made["instances"].values() for nic in item.get("nics", [])),
        ]
        for part in parts:
            if part.get("name"):
                part["name"] = self._part(part["name"])

    def _cluster(self, cluster: dict[str, Any]) -> None:
        cluster["rsahostkeypub"] = _NO_SECRET
        _set(cluster, "dsahostkeypub", _NO_SECRET)
        _set(cluster, "export_key", _NO_SECRET)
        cluster["candidate_certs"] = dict.fromkeys(cluster["candidate_certs"], _DIGEST)
        cluster["osparams_private_cluster"] = {
            name: dict.fromkeys(params, _NO_SECRET)
            for name, params in cluster["osparams_private_cluster"].items()
        }
        # The URL of an image may contain a user and a password.
        for key in ("install_image", "zeroing_image"):
            _set(cluster, key, _NO_SECRET)
        if self._names:
            _set(cluster["ndparams"], "oob_program", _NO_SECRET)
        self._address(cluster, "master_ip")
        if self._lvs:
            _change(cluster, "volume_group_name", self._vg)
            cluster["reserved_lvs"] = [self._lv(name) for name in cluster["reserved_lvs"]]
        self._metavg(cluster["diskparams"])
        if self._os_names:
            for key in ("os_hvp", "osparams", "osparams_private_cluster"):
                cluster[key] = {self._os_name(name): value for name, value in cluster[key].items()}
            for key in ("hidden_os", "blacklisted_os"):
                cluster[key] = [self._os_name(name) for name in cluster[key]]

    def _one_instance(self, instance: dict[str, Any]) -> None:
        instance["osparams_private"] = dict.fromkeys(
            instance.get("osparams_private", {}), _NO_SECRET
        )
        if self._os_names:
            _change(instance, "os", self._os_name)
        for nic in instance.get("nics", []):
            self._address(nic, "ip")
            self._address(nic, "ip6")
            if self._ips:
                _change(nic, "mac", self._mac)

    def _device(self, device: dict[str, Any]) -> None:
        parts = device.get("logical_id") or []
        kind = device["dev_type"]
        if kind == disk_const.DRBD8 and len(parts) >= 6:
            parts[5] = _NO_SECRET
        elif kind == disk_const.PLAIN and self._lvs:
            device["logical_id"] = [self._vg(parts[0]), self._lv(parts[1])]
        elif self._names and len(parts) == 2:
            # The path of a file contains the name of the instance; other disk templates may, too.
            for old, new in self._instance.items():
                parts[1] = str(parts[1]).replace(old, new)
        if self._lvs and isinstance(device.get("params"), dict):
            _change(device["params"], "metavg", self._vg)
        for child in device.get("children", []):
            self._device(child)

    def _metavg(self, diskparams: dict[str, Any]) -> None:
        if self._lvs and isinstance(diskparams.get(disk_const.DRBD8), dict):
            _change(diskparams[disk_const.DRBD8], "metavg", self._vg)

    def _os_name(self, name: str) -> str:
        base, plus, variant = name.partition("+")
        return self._os(base) + plus + self._variant(variant)

    def _address(self, item: dict[str, Any], key: str) -> None:
        if self._ips:
            _change(item, key, self._addresses.replace)

    def _mac(self, mac: str) -> str:
        number = self._mac_numbers.setdefault(mac.lower(), len(self._mac_numbers) + 1)
        low = number.to_bytes(3, "big")
        return f"{mac[:8].lower()}:{low[0]:02x}:{low[1]:02x}:{low[2]:02x}"


def _set(item: dict[str, Any], key: str, value: Any) -> None:
    """Replace a text which exists and is not empty; the value None keeps it."""
    if value is not None and item.get(key):
        item[key] = value


def _change(item: dict[str, Any], key: str, change: Callable[[str], str]) -> None:
    if item.get(key):
        item[key] = change(item[key])


class _Addresses:
    """Replaces addresses; addresses of one network remain in one network, at the same offset.

    Each block of 256 addresses gets another block below 10.0.0.0/9. Larger networks get a block
    below 10.128.0.0/9 as a whole. IPv6 addresses keep their last 64 bits.
    """

    def __init__(self) -> None:
        self._large: set[int] = set()
        self._blocks: dict[tuple[int, int], int] = {}

    def note(self, network: str | None) -> None:
        """Note the size of a network; must be called before the first address is replaced."""
        if network:
            parsed = ipaddress.ip_network(network)
            if parsed.version == 4 and parsed.prefixlen < 24:
                self._large.add(int(parsed.network_address) >> 16)

    def replace(self, address: str) -> str:
        """Return the replacement of an address or network; a network keeps its prefix length.

        :raises ConfigurationError: the text is not an address, or there are too many networks.
        """
        plain, slash, length = address.partition("/")
        try:
            parsed = ipaddress.ip_address(plain)
        except ValueError as err:
            raise errors.ConfigurationError(f"'{plain}' is not an IP address") from err
        number = int(parsed)
        if parsed.version == 6:
            block = self._block(64, number >> 64, 1 << 16)
            made = (
                int(ipaddress.IPv6Address("2001:db8::"))
                + (block << 64)
                + (number & ((1 << 64) - 1))
            )
            return f"{ipaddress.IPv6Address(made)}{slash}{length}"
        if number >> 16 in self._large:
            made = (
                (10 << 24) + ((128 + self._block(16, number >> 16, 128)) << 16) + (number & 0xFFFF)
            )
        else:
            made = (10 << 24) + (self._block(24, number >> 8, 1 << 15) << 8) + (number & 0xFF)
        return f"{ipaddress.IPv4Address(made)}{slash}{length}"

    def _block(self, kind: int, prefix: int, limit: int) -> int:
        taken = sum(1 for other, _prefix in self._blocks if other == kind)
        block = self._blocks.setdefault((kind, prefix), taken)
        if block >= limit:
            raise errors.ConfigurationError("there are more networks than can be replaced")
        return block


def _yes_no(value: str) -> bool:
    found = _YES.get(value.lower())
    if found is None:
        raise argparse.ArgumentTypeError(f"'{value}' is neither yes nor no")
    return found


def make_parser() -> argparse.ArgumentParser:
    """Describe the options of the program."""
    parser = argparse.ArgumentParser(
        prog="sanitize-config",
        description="Print a configuration without secrets, names and addresses.",
    )

    def choice(name: str, default: str, what: str) -> None:
        parser.add_argument(
            name,
            type=_yes_no,
            default=_YES[default],
            metavar="yes|no",
            help=f"replace {what} (default: {default})",
        )

    parser.add_argument(
        "--path",
        dest="CONFIG_DATA_PATH",
        metavar="FILE",
        default=paths.current().cluster_conf_file,
        help="file of the configuration (default: %(default)s)",
    )
    choice("--sanitize-names", "yes", "names of all objects, and tags")
    choice("--sanitize-ips", "yes", "IP and MAC addresses")
    choice("--sanitize-lvs", "no", "names of logical volumes and volume groups")
    choice("--sanitize-os-names", "yes", "names of operating systems")
    parser.add_argument(
        "--no-randomization",
        action="store_true",
        help="number the new names instead of making random ones",
    )
    parser.add_argument(
        "--base-domain",
        default="example.com",
        metavar="DOMAIN",
        help="domain of the new names (default: %(default)s)",
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    options = make_parser().parse_args(argv)
    try:
        config = upgrade.upgrade(config_files.read_raw(options.CONFIG_DATA_PATH))
        # A file which is not a configuration could contain secrets at any place.
        config_files.problems_of(config)
        made = Sanitizer(
            names=options.sanitize_names,
            ips=options.sanitize_ips,
            lvs=options.sanitize_lvs,
            os_names=options.sanitize_os_names,
            randomize=not options.no_randomization,
            domain=options.base_domain,
        ).sanitize(config)
    except errors.GenericError as err:
        config_files.say(f"sanitize-config: {err}")
        return exit_codes.EXIT_FAILURE
    sys.stdout.write(json.dumps_pretty(made))
    return exit_codes.EXIT_SUCCESS


if __name__ == "__main__":
    sys.exit(main())
