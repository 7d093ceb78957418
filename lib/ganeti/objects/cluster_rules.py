"""Checks of single parameters of the cluster.

``gnt-cluster init`` uses them before there is a configuration, ``gnt-cluster modify`` for each
change. All functions return the value in its stored form or raise
:class:`~ganeti.errors.ParameterError`, whose text names the parameter. :mod:`ganeti.config.verify`
and the logical units check values against other objects.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from ganeti import errors
from ganeti.constants import balance as balance_c
from ganeti.constants import cluster as cluster_c
from ganeti.constants import disk as disk_c
from ganeti.constants import failover as failover_c
from ganeti.constants import hv as hv_c
from ganeti.constants import instance as instance_c
from ganeti.constants import instance_failover as instance_failover_c
from ganeti.constants import net as net_c
from ganeti.constants import node as node_c
from ganeti.constants import node_watchdog as node_watchdog_c
from ganeti.objects import disk_templates, hvparams, hypervisors, ipolicy
from ganeti.objects.hypervisors.parameter import is_url
from ganeti.utils import linear_re, text

_MAC_PREFIX = re.compile(r"[0-9a-f]{2}:[0-9a-f]{2}:[0-9a-f]{2}")
_TOOL = re.compile(r"[-_a-zA-Z0-9]+")

_MAX_URL = 1024

UID_MAX = 4294967295
UidRange = tuple[int, int]


def mac_prefix(given: str) -> str:
    """Check the prefix of generated MAC addresses: the first three bytes."""
    prefix = given.lower()
    if not _MAC_PREFIX.fullmatch(prefix):
        raise errors.ParameterError(f"'{given}' is not the first three bytes of a MAC address")
    if int(prefix[:2], 16) & 1:
        raise errors.ParameterError(
            f"MAC addresses which begin with {prefix} are multicast addresses, not those of a NIC"
        )
    return prefix


def master_netmask(bits: int, family: int) -> int:
    """Check the netmask of the master address, a number of bits."""
    longest = 128 if family == net_c.IP6_FAMILY else 32
    if not 0 < bits <= longest:
        raise errors.ParameterError(
            f"the netmask of the master has 1 to {longest} bits, not {bits}"
        )
    return bits


def auto_instance_failover(seconds: int) -> int | None:
    """Check the time without an answer after which a node counts as gone; 0 for never.

    :raises errors.ParameterError: it is too short or too long.
    """
    least, most = instance_failover_c.MIN_S, instance_failover_c.MAX_S
    if seconds and not least <= seconds <= most:
        raise errors.ParameterError(
            f"an automatic failover of instances after {seconds} s is not possible; the time is"
            f" {least} to {most} s"
        )
    return seconds or None


def node_watchdog(seconds: int) -> int | None:
    """Check the timeout of the hardware watchdogs of nodes; 0 for not using them.

    :raises errors.ParameterError: it is too short or too long.
    """
    least, most = node_watchdog_c.MIN_S, node_watchdog_c.MAX_S
    if seconds and not least <= seconds <= most:
        raise errors.ParameterError(
            f"hardware watchdogs cannot have a timeout of {seconds} s; it is {least} to {most} s"
        )
    return seconds or None


def auto_failover(seconds: int) -> int | None:
    """Check the time without a master after which a candidate asks for its role; 0 for never."""
    if seconds and not failover_c.MIN_S <= seconds <= failover_c.MAX_S:
        raise errors.ParameterError(
            f"an automatic failover of the master after {seconds} s is not possible; the time is"
            f" {failover_c.MIN_S} to {failover_c.MAX_S} s"
        )
    return seconds or None


def witness(url: str) -> str | None:
    """Check the URL of the document of the witness; ``none`` or nothing for no witness.

    :raises errors.ParameterError: it is not a URL of a document on an HTTPS server.
    """
    import urllib.parse

    if url in ("", "none"):
        return None
    try:
        parts = urllib.parse.urlsplit(url)
        port = parts.port
    except ValueError as err:
        raise errors.ParameterError(f"witness: not a URL: {err}") from err
    if parts.username is not None or parts.password is not None:
        # The message does not repeat the URL, which has a secret.
        raise errors.ParameterError(
            "witness: the URL must not contain a user or password; use --witness-auth"
        )
    if (
        parts.scheme != "https"
        or not parts.hostname
        or len(parts.path) < len("/x")
        or parts.fragment
        or port == 0
        or len(url) > _MAX_URL
        or not url.isascii()
        or not url.isprintable()
        or " " in url
    ):
        raise errors.ParameterError(
            f"witness: {url!r:.300} is not the URL of a document, https://HOST[:PORT]/PATH"
        )
    return url


def auto_balance(given: Mapping[str, Any]) -> dict[str, Any] | None:
    """Check the settings of the automatic balance; missing ones get their defaults.

    :param given: ``moves_per_hour`` and ``min_gain``; empty to switch it off.
    :raises ParameterError: a setting is unknown or wrong.
    """
    if not given:
        return None
    unknown = sorted(set(given) - set(balance_c.DEFAULTS))
    if unknown:
        raise errors.ParameterError(
            f"automatic balance: {', '.join(unknown)} is not one of {', '.join(balance_c.DEFAULTS)}"
        )
    found = {**balance_c.DEFAULTS, **given}
    moves, gain = found[balance_c.MOVES_PER_HOUR], found[balance_c.MIN_GAIN]
    most = balance_c.MAX_MOVES_PER_HOUR
    if not isinstance(moves, int) or isinstance(moves, bool) or not 1 <= moves <= most:
        raise errors.ParameterError(
            f"automatic balance: {moves!r} is not a number of moves in an hour from 1 to {most}"
        )
    if not isinstance(gain, int | float) or isinstance(gain, bool) or not 0 < gain < math.inf:
        raise errors.ParameterError(f"automatic balance: {gain!r} is not a gain above 0")
    return found


def chosen(names: Iterable[str], known: Iterable[str], what: str) -> tuple[str, ...]:
    """Check a list of names: at least one, each known. A name given twice is taken once.

    :param what: the noun for a name in messages.
    """
    found = tuple(names)
    known = sorted(known)
    if not found:
        raise errors.ParameterError(f"at least one {what} must be enabled")
    for name in found:
        if name not in known:
            raise errors.ParameterError(
                f"there is no {what} '{name}'. Known are {text.comma_join(known)}."
            )
    return tuple(dict.fromkeys(found))


def check_state_names(hv_state: Iterable[str], disk_state: Iterable[str]) -> None:
    """Check the names in the states which an administrator sets for nodes.

    :param hv_state: names of hypervisors.
    :param disk_state: types of storage.
    """
    for name in hv_state:
        if name not in hv_c.ALL:
            raise errors.ParameterError(f"there is no hypervisor {name!r}")
    for kind in disk_state:
        if kind not in node_c.DISK_STATE_TYPES:
            raise errors.ParameterError(
                f"storage of type {kind!r} has no state, only"
                f" {text.comma_join(node_c.DISK_STATE_TYPES)}"
            )


def storage_dir(given: str, template: str) -> str:
    """Check the directory for the disks of a template; an empty text for none."""
    if given and not os.path.isabs(given):
        raise errors.ParameterError(
            f"the directory of disk template {template} is relative: {given}"
        )
    return os.path.normpath(given) if given else ""


def backend_params(filled: Mapping[str, Any]) -> None:
    """Check the default backend parameters."""
    low, high = filled[instance_c.BE_MINMEM], filled[instance_c.BE_MAXMEM]
    if low > high:
        raise errors.ParameterError(
            f"the minimum memory of an instance ({low} MiB) is above the maximum ({high} MiB)"
        )
    if low < 1 or filled[instance_c.BE_VCPUS] < 1:
        raise errors.ParameterError("an instance needs memory and at least one processor")


def nic_params(filled: Mapping[str, Any], modes: Sequence[str]) -> None:
    """Check the default NIC parameters.

    :param modes: the modes which NICs may have.
    """
    if filled["mode"] not in modes:
        raise errors.ParameterError(
            f"there is no NIC mode '{filled['mode']}'. Known are {text.comma_join(modes)}."
        )
    if filled["mode"] == net_c.NIC_MODE_BRIDGED and not filled["link"]:
        raise errors.ParameterError("NIC mode bridged needs a link, the name of the bridge")


def disk_params(given: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Check parameters of disk templates; return them with the right types."""
    found: dict[str, dict[str, Any]] = {}
    for template, params in given.items():
        if template not in disk_templates.ALL:
            raise errors.ParameterError(f"there is no disk template '{template}'")
        known = disk_templates.of(template).parameters
        unknown = sorted(set(params) - set(known))
        if unknown:
            there_are = f"Known are {text.comma_join(sorted(known))}." if known else "It has none."
            raise errors.ParameterError(
                f"disk template {template} has no parameter {text.comma_join(unknown)}. {there_are}"
            )
        forced = hvparams.force_types(params, disk_templates.parameter_types())
        access = forced.get("access", disk_c.KERNELSPACE)
        if access not in disk_c.DISK_ACCESS_MODES:
            raise errors.ParameterError(
                f"disk template {template}: access is one of"
                f" {text.comma_join(disk_c.DISK_ACCESS_MODES)}, not '{access}'"
            )
        for name, value in forced.items():
            pattern = known[name].pattern
            if pattern and not re.fullmatch(pattern, str(value), re.ASCII):
                raise errors.ParameterError(f"disk template {template}: {name} cannot be '{value}'")
            if isinstance(value, int) and not isinstance(value, bool) and value < 0:
                raise errors.ParameterError(
                    f"disk template {template}: {name} cannot be below zero"
                )
        found[template] = forced
    return found


def policy_templates(policy: Mapping[str, Any], enabled: Sequence[str], whose: str) -> None:
    """Check that a policy allows at least one of the enabled disk templates."""
    if not set(policy[ipolicy.DISK_TEMPLATES]) & set(enabled):
        raise errors.ParameterError(f"{whose} allows none of the enabled disk templates")


def image(given: str, what: str) -> str:
    """Check a disk image: an absolute path, a URL, or an empty text."""
    if given and not os.path.isabs(given) and not is_url(given):
        raise errors.ParameterError(f"the {what} is neither an absolute path nor a URL: {given}")
    return given


def compression_tools(given: Sequence[str]) -> tuple[str, ...]:
    """Check the compression tools; ``none`` is always allowed and not listed."""
    for name in given:
        if not _TOOL.fullmatch(name):
            raise errors.ParameterError(f"'{name}' is not the name of a compression tool")
        if list(given).count(name) > 1:
            raise errors.ParameterError(f"compression tool '{name}' is given twice")
    if "gzip" not in given:
        raise errors.ParameterError(
            "gzip must be among the compression tools, because exports of other clusters use it"
        )
    return tuple(given)


def volume_patterns(given: Sequence[str]) -> tuple[str, ...]:
    """Check the regular expressions of reserved logical volumes."""
    budget = linear_re.Budget()
    for pattern in given:
        try:
            linear_re.Pattern(pattern, budget)
        except errors.ParameterError as err:
            raise errors.ParameterError(f"reserved volumes: {err}") from err
    return tuple(given)


def is_reserved_volume(patterns: Iterable[str]) -> Callable[[str], bool]:
    """Return a function which says whether one of the patterns matches the whole name of a volume.

    A pattern of an older configuration which is not accepted any more matches nothing;
    :mod:`ganeti.config.verify` reports it.
    """
    usable = []
    for pattern in patterns:
        with contextlib.suppress(errors.ParameterError):
            usable.append(linear_re.Pattern(pattern))
    return lambda name: any(one.fullmatch(name) for one in usable)


def uid_ranges(given: Iterable[Sequence[int]]) -> tuple[UidRange, ...]:
    """Check ranges of user IDs, which must not overlap; return them in ascending order."""
    ranges: list[UidRange] = []
    for pair in given:
        first, last = pair
        if not 0 <= first <= last <= UID_MAX:
            raise errors.ParameterError(
                f"uid pool: {uid_text((first, last))} is not a range of user IDs between 0 and"
                f" {UID_MAX}"
            )
        ranges.append((first, last))
    ranges.sort()
    for one, other in zip(ranges, ranges[1:], strict=False):
        if one[1] >= other[0]:
            raise errors.ParameterError(f"uid pool: {uid_text(one)} and {uid_text(other)} overlap")
    return tuple(ranges)


#: Why a guest cannot have a user of the pool.
EMPTY_POOL = (
    "pool, but the cluster's pool of user ids is empty. Fill it with"
    " 'gnt-cluster modify --uid-pool=auto'."
)


def require_pool(
    hypervisor: str, params: Mapping[str, Any], pool: Collection[Sequence[int]]
) -> None:
    """Check that the cluster has a pool of user ids, if guests with these parameters need it.

    :raises HypervisorError: the pool is empty.
    """
    choice = hypervisors.of(hypervisor).user_parameter
    if choice is not None and params.get(choice.name) == choice.pool and not pool:
        raise errors.HypervisorError(f"hypervisor parameter {choice.name}: {EMPTY_POOL}")


def uid_text(one: UidRange) -> str:
    """Return a range of user IDs as text: ``FIRST-LAST``, or a single ID."""
    return str(one[0]) if one[0] == one[1] else f"{one[0]}-{one[1]}"


def add_uids(pool: Iterable[UidRange], more: Iterable[Sequence[int]]) -> tuple[UidRange, ...]:
    """Return a pool with further ranges, which must not overlap with present ones."""
    return uid_ranges([*pool, *uid_ranges(more)])


def remove_uids(pool: Iterable[UidRange], less: Iterable[Sequence[int]]) -> tuple[UidRange, ...]:
    """Return a pool without some IDs, which must be in it; this may split a range."""
    left = list(pool)
    for first, last in uid_ranges(less):
        holder = next((one for one in left if one[0] <= first and last <= one[1]), None)
        if holder is None:
            raise errors.ParameterError(
                f"uid pool: {uid_text((first, last))} is not in one of its ranges"
            )
        left.remove(holder)
        left += [
            part for part in ((holder[0], first - 1), (last + 1, holder[1])) if part[0] <= part[1]
        ]
    return uid_ranges(left)


def data_collectors(
    present: Mapping[str, Mapping[str, Any]],
    active: Mapping[str, bool] | None,
    interval_us: Mapping[str, int] | None,
) -> dict[str, dict[str, Any]]:
    """Return the settings of the data collectors with changes.

    :param active: whether collectors run, by name.
    :param interval_us: microseconds between two runs, by name.
    """
    found = {
        name: {
            "active": True,
            "interval": cluster_c.DATA_COLLECTOR_INTERVAL_US,
            **present.get(name, {}),
        }
        for name in cluster_c.DATA_COLLECTORS
    }
    for name in sorted({*(active or ()), *(interval_us or ())}):
        if name not in found:
            raise errors.ParameterError(
                f"there is no data collector '{name}'. Known are"
                f" {text.comma_join(cluster_c.DATA_COLLECTORS)}."
            )
    for name, value in (active or {}).items():
        found[name]["active"] = value
    for name, length in (interval_us or {}).items():
        if length < 1:
            raise errors.ParameterError(
                f"data collector {name}: the time between two runs must be above zero"
            )
        found[name]["interval"] = length
    return found
