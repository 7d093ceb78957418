"""CPU pinning: the processors of the node on which a guest may run (parameter ``cpu_mask``).

One mask applies to all threads of QEMU. Several masks apply to one virtual processor each, and not
to the other threads of QEMU.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from ganeti import errors
from ganeti.hypervisor.kvm.qmp import Qmp
from ganeti.objects.hypervisors import cpu_masks


def masks_of(hvparams: Mapping[str, Any]) -> list[list[int]]:
    """Return the masks of a guest: lists of processors, in which ``CPU_ALL_VALUE`` stands for all.

    :raises HypervisorError: a mask has a wrong form, or names a processor which this node lacks.
    """
    try:
        masks = cpu_masks.parse_cpu_masks(hvparams.get("cpu_mask") or cpu_masks.CPU_ALL)
    except errors.ParseError as err:
        raise errors.HypervisorError(f"parameter cpu_mask: {err}") from err
    # Processors which are switched off have numbers, too.
    count = os.sysconf("SC_NPROCESSORS_CONF")
    for cpu in (cpu for mask in masks for cpu in mask if cpu >= count):
        raise errors.HypervisorError(
            f"parameter cpu_mask: processor {cpu} is not one of the {count} of this node"
        )
    return masks


def pin(control: Qmp, pid: int, masks: Sequence[Sequence[int]], instance_name: str) -> None:
    """Restrict the threads of a QEMU to their processors.

    :param pid: of the QEMU.
    :raises HypervisorError: the number of masks is not that of the virtual processors, or the
        kernel refuses.
    """
    if all(list(mask) == [cpu_masks.CPU_ALL_VALUE] for mask in masks):
        return
    if len(masks) == 1:
        threads = [int(thread) for thread in os.listdir(f"/proc/{pid}/task")]
        masks = [masks[0]] * len(threads)
    else:
        cpus = sorted(control.execute("query-cpus-fast"), key=lambda cpu: cpu["cpu-index"])
        threads = [cpu["thread-id"] for cpu in cpus]
        if len(masks) != len(threads):
            raise errors.HypervisorError(
                f"instance {instance_name}: cpu_mask has {len(masks)} masks for "
                f"{len(threads)} virtual processors"
            )
    for thread, mask in zip(threads, masks, strict=True):
        if list(mask) != [cpu_masks.CPU_ALL_VALUE]:
            _pin_thread(thread, mask)


def _pin_thread(thread: int, mask: Sequence[int]) -> None:
    try:
        os.sched_setaffinity(thread, mask)
    except ProcessLookupError:
        # A worker thread which has ended in between.
        return
    except OSError as err:
        raise errors.HypervisorError(
            f"parameter cpu_mask: this node does not let a guest run on processors "
            f"{', '.join(map(str, mask))}: {err.strerror}"
        ) from err
