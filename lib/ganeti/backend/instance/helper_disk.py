"""The first disk of a helper guest: a copy of its image, which exists as long as the guest.

Its directory below ``/var/lib/ganeti/helper`` says that a helper guest replaces the instance of
that name at the moment; a call which starts or stops the instance finds the directory and ends the
helper guest.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from typing import Any, NamedTuple

from ganeti import errors
from ganeti.constants import disk as disk_c
from ganeti.objects.disk import Disk
from ganeti.platform import paths
from ganeti.storage import content, copy, image_format
from ganeti.utils import free_space, fs, process, text
from ganeti.wire import json

# A small system; a larger file is a mistake, and would fill the disk of the node.
_MAX_BYTES = 16 << 30
_ADDRESS = re.compile(r"^https?://\S+$")
_FETCH_TIMEOUT_S = 3000.0
_MIB = 1 << 20
# Unit of st_blocks.
_UNIT = 512
_SIDE_SUFFIX = ".json"
#: Hypervisor parameters that name a file.
_FILES = frozenset(("kernel_path", "initrd_path"))


class HelperDisk(NamedTuple):
    """A disk of a helper guest.

    :ivar hvparams: the hypervisor parameters which the image needs to boot, see :func:`make`.
    """

    disk: Disk
    path: str
    hvparams: dict[str, Any]


def directory(instance_name: str) -> str:
    """Return the directory of the files of the helper guest of an instance."""
    return f"{paths.current().helper_dir}/{os.path.basename(instance_name)}"


def exists(instance_name: str) -> bool:
    """Return whether an instance has a helper guest, or the files of an interrupted one."""
    return os.path.isdir(directory(instance_name))


def make(instance_name: str, image: str) -> HelperDisk:
    """Make the disk of a helper guest from an image.

    Beside the image may be a file with the same name and ``.json`` behind it: hypervisor parameters
    of a guest that boots from it, such as ``kernel_path``; names of files without a directory are
    beside the image. Without it the image must boot by itself.

    :param image: absolute path on this node, or an address.
    :raises OpExecError: the image is not raw, or cannot be read or copied; the directory may exist
        then.
    """
    where = directory(instance_name)
    fs.make_dirs(paths.current().helper_dir, 0o750)
    fs.make_dirs(where, 0o700)
    target = f"{where}/image"
    try:
        if _ADDRESS.fullmatch(image):
            process.run(
                copy.fetch_argv(image, target, free_space.at_most(where, _MAX_BYTES)),
                timeout_s=_FETCH_TIMEOUT_S,
                stdin=copy.fetch_input(image),
            )
            hvparams: dict[str, Any] = {}
        else:
            local = paths.current().to_local(image)
            source = local if os.path.exists(local) else image
            hvparams = _side_parameters(source)
            _copy(source, target)
        _require_raw(target, image)
        size_bytes = _round_up(target)
    except errors.CommandError as err:
        shown = copy.shown_address(image)
        raise errors.OpExecError(f"cannot load the image {shown}: {err}") from err
    except OSError as err:
        raise errors.OpExecError(
            f"cannot copy the image {image} of the helper guest: {err.strerror or err}"
        ) from err
    disk = Disk(
        dev_type=disk_c.FILE,
        logical_id=(disk_c.FILE_DRIVER_LOOP, target),
        size=size_bytes // _MIB,
        iv_name="disk/0",
        name="helper",
        uuid=text.new_uuid(),
    )
    return HelperDisk(disk, target, hvparams)


def _copy(source: str, target: str) -> None:
    found = os.stat(source)
    if not stat.S_ISREG(found.st_mode):
        raise errors.OpExecError(f"the image {source} of the helper guest is not a file")
    if not found.st_size:
        raise errors.OpExecError(f"the image {source} of the helper guest is empty")
    try:
        # Holes are not copied.
        data = min(found.st_size, found.st_blocks * _UNIT)
        free_space.require(os.path.dirname(target), data, f"the helper image {source}")
    except free_space.NoSpace as err:
        raise errors.OpExecError(str(err)) from err
    fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    os.close(fd)
    content.copy(source, target, found.st_size)
    os.truncate(target, found.st_size)


def _require_raw(path: str, image: str) -> None:
    """Check the format of a loaded image.

    :param image: the image as the user named it.
    """
    problem = image_format.not_raw(path, copy.shown_address(image))
    if problem is not None:
        raise errors.OpExecError(f"the helper guest cannot start: {problem}")


def _round_up(path: str) -> int:
    """Extend a disk to a multiple of 1 MiB; return its size in bytes."""
    size = -(-os.path.getsize(path) // _MIB) * _MIB
    os.truncate(path, size)
    return size


def _side_parameters(image: str) -> dict[str, Any]:
    path = f"{image}{_SIDE_SUFFIX}"
    try:
        found = json.loads(fs.read_file(path))
    except FileNotFoundError:
        return {}
    except errors.ParseError as err:
        raise errors.OpExecError(f"cannot read {path}: {err}") from err
    if not isinstance(found, dict):
        raise errors.OpExecError(f"{path} does not hold hypervisor parameters")
    beside = os.path.dirname(image)
    return {
        key: os.path.join(beside, value) if value and key in _FILES else value
        for key, value in found.items()
    }


def remove(instance_name: str) -> None:
    """Remove the directory with all files; a missing directory is not an error."""
    shutil.rmtree(directory(instance_name), ignore_errors=True)
