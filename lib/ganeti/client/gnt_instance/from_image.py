"""The options ``--image`` and ``--metadata`` of ``gnt-instance add``.

They need nothing of the master daemon that other options do not need: they become the OS
definition ``image``, its parameters, disks, and parameters of the hypervisor.
"""

from __future__ import annotations

from ganeti import TYPE_CHECKING, errors
from ganeti.cli import jobs
from ganeti.cli.command import Values
from ganeti.constants import disk
from ganeti.objects import hypervisors, ipolicy

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from ganeti.foreign import catalogue
    from ganeti.luxi import client as luxi

#: The OS definition which writes images, and the disk on which it writes the data of cloud-init.
OS, SEED_DISK = "image", ipolicy.SEED_DISK
_SEED_MIB = 4
_METADATA = ("ssh-key", "user-data")
# The longest text which the kernel accepts as one variable has 128 KiB.
_MAKE_A_KEY = (
    ". Name the public key of the person who is to log in, or make your own: ssh-keygen -t ed25519"
)
_METADATA_BYTES = 120 << 10
_KEY_TYPES = ("ssh-", "ecdsa-", "sk-")
_USER_DATA_BEGINS = ("#", "Content-Type:", "MIME-Version:")


def prepare(values: Values) -> None:
    """Change the values of options as ``--image`` and ``--metadata`` say.

    :raises OpPrereqError: there is no such image, other options contradict it, or a file cannot be
        used.
    """
    if values.metadata:
        _add_metadata(values)
    if values.image is None:
        return
    from ganeti.foreign import catalogue
    from ganeti.foreign.machine import whole_mib

    _require_alone(values)
    client = jobs.connect()
    found, _problems = catalogue.read(catalogue.directory())
    image = _image(found, values.image)
    info = client.query_cluster_info()
    values.set("os", values.os or OS)
    values.set("osparams", {**values.osparams, "image": image.name})
    _choose_template(values, info)
    _choose_the_only_node(values, client)
    if not values.disks:
        policy = info["ipolicy"]
        least = whole_mib(image.size)
        if values.sd_size is not None and values.sd_size < least:
            raise errors.OpPrereqError(
                f"image {image.name} needs a disk of at least {least} MiB, not {values.sd_size}",
                errors.ECODE_INVAL,
            )
        size = values.sd_size or max(least, policy["std"]["disk-size"])
        values.set("sd_size", None)
        values.set(
            "disks",
            [("0", {"size": str(size)}), ("1", {"size": str(_SEED_MIB), "name": SEED_DISK})],
        )
    _boot_from_disk(values, info)


def _image(found: Mapping[str, catalogue.Image], name: str) -> catalogue.Image:
    """Return an image of the catalogue.

    :raises OpPrereqError: it is not there; a short name of a published one has to be fetched first.
    """
    from ganeti.foreign import catalogue, short_names

    hint = "" if name in found else short_names.hint(name)
    if hint:
        raise errors.OpPrereqError(
            f"the image {name} is not in the catalogue yet.{hint}", errors.ECODE_NOENT
        )
    return catalogue.require(found, name)


def _choose_template(values: Values, info: Mapping[str, Any]) -> None:
    """Choose the first disk template with disks, where the usual one of the cluster is diskless.

    :raises OpPrereqError: the cluster has no other one.
    """
    enabled = info.get("enabled_disk_templates") or [""]
    if values.disk_template or enabled[0] != disk.DISKLESS:
        return
    if len(enabled) == 1:
        raise errors.OpPrereqError(
            "--image needs a disk, and the cluster has only the disk template diskless. Enable"
            " another one: gnt-cluster modify --enabled-disk-templates=file,diskless",
            errors.ECODE_INVAL,
        )
    values.set("disk_template", enabled[1])


def _choose_the_only_node(values: Values, client: luxi.Client) -> None:
    """Name the node of a cluster of one node.

    There is nothing to choose, and the allocator ``hail`` refuses each place there, because nothing
    survives the loss of that node.
    """
    if values.node or values.iallocator or values.nodegroup:
        return
    rows = client.query_nodes([], ["name", "vm_capable"], False)
    usable = [name for name, vm_capable in rows if vm_capable]
    if len(usable) == 1:
        values.set("node", usable[0])


def _require_alone(values: Values) -> None:
    """Refuse options which contradict ``--image``.

    :raises OpPrereqError: one of them is given.
    """
    contradicted = (
        ("--no-install", values.no_install),
        ("--commit", values.commit),
        ("-t diskless", values.disk_template == "diskless"),
        ("-O image=...", "image" in values.osparams),
    )
    for option, given in contradicted:
        if given:
            raise errors.OpPrereqError(
                f"--image and {option} contradict each other", errors.ECODE_INVAL
            )


def _boot_from_disk(values: Values, info: Mapping[str, Any]) -> None:
    """Let the guest start the kernel of the image, unless the user or the cluster names another.

    A disk image has its own kernel; the default of ``kernel_path`` is a kernel of the node.
    """
    name, params = values.hypervisor or (info["default_hypervisor"], {})
    if not isinstance(params, dict) or name not in hypervisors.ALL:
        return
    of_os = info["os_hvp"].get(values.os) or {}
    chosen = {**of_os.get(name, {}), **params}
    filled = {**info["hvparams"].get(name, {}), **chosen}
    needed = hypervisors.of(name).boot_from_disk(filled, chosen)
    new = {key: value for key, value in needed.items() if key not in chosen}
    if new:
        values.set("hypervisor", (name, {**params, **new}))


def _add_metadata(values: Values) -> None:
    given: dict[str, list[str]] = {}
    for pairs in values.metadata:
        for key, value in pairs.items():
            if key not in _METADATA:
                raise errors.OpPrereqError(
                    f"--metadata has no '{key}'. Known are: {', '.join(_METADATA)}.",
                    errors.ECODE_INVAL,
                )
            if not isinstance(value, str) or not value:
                raise errors.OpPrereqError(f"--metadata: write {key}=FILE", errors.ECODE_INVAL)
            given.setdefault(key, []).append(value)
    if "ssh-key" in given:
        keys = [key for value in given["ssh-key"] for key in _keys(value)]
        values.set("osparams", {**values.osparams, "ssh_key": "\n".join(keys)})
    if "user-data" in given:
        if len(given["user-data"]) > 1:
            raise errors.OpPrereqError("--metadata: user-data is given twice", errors.ECODE_INVAL)
        text = _user_data(given["user-data"][0])
        # User data often has passwords, so they stay out of logs and lists.
        values.set("osparams_private", {**values.osparams_private, "user_data": text})


def _text(path: str, way_out: str = "") -> str:
    import os.path

    try:
        # A shell leaves the tilde of ssh-key=~/.ssh/id_ed25519.pub as it is.
        with open(os.path.expanduser(path), "rb") as stream:
            content = stream.read(_METADATA_BYTES + 1)
        if len(content) > _METADATA_BYTES:
            raise errors.OpPrereqError(
                f"{path} has more than {_METADATA_BYTES >> 10} KiB", errors.ECODE_INVAL
            )
        return content.decode()
    except OSError as err:
        raise errors.OpPrereqError(
            f"--metadata: cannot read {path}: {err.strerror}{way_out}", errors.ECODE_INVAL
        ) from err
    except UnicodeDecodeError as err:
        raise errors.OpPrereqError(
            f"--metadata: {path} is not a text in UTF-8", errors.ECODE_INVAL
        ) from err


def _keys(value: str) -> list[str]:
    """Return the public keys of a file, or the key itself.

    :raises OpPrereqError: the file has another content, such as a private key.
    """
    text = value if value.startswith(_KEY_TYPES) and " " in value else _text(value, _MAKE_A_KEY)
    lines = [line.strip() for line in text.splitlines()]
    keys = [line for line in lines if line and not line.startswith("#")]
    if not keys or not all(key.startswith(_KEY_TYPES) and " " in key for key in keys):
        raise errors.OpPrereqError(
            f"--metadata: {value:.120} has something else than public SSH keys."
            " The name of such a file usually ends in '.pub'.",
            errors.ECODE_INVAL,
        )
    return keys


def _user_data(path: str) -> str:
    text = _text(path)
    if not text.startswith(_USER_DATA_BEGINS):
        raise errors.OpPrereqError(
            f"--metadata: {path} is not user data of cloud-init, which begin with a line such as"
            " '#cloud-config' or '#!/bin/sh'",
            errors.ECODE_INVAL,
        )
    return text
