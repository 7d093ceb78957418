"""Metrics of what the guests of this node use: processor, memory, disks and network.

The hypervisors measure with the counters of the kernel, and ask no guest and no QEMU. The only
label is the name of the guest: disks and interfaces of a guest are added up, so that a guest has
seven samples at most, and none any more when it has left the node.

A measurement counts for :data:`KEEP_S`, however many programs read. It is made by a thread for each
hypervisor, and a page waits for it at most :data:`WAIT_S`. So a hypervisor which does not answer
neither delays the page for long nor hides the guests of another one.

The measuring function comes from the caller: this module is below the hypervisors in the layers.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from ganeti.mond.openmetrics import COUNTER, GAUGE, Family
from ganeti.utils import clock, shortage

_log = logging.getLogger(__name__)

#: How long a measurement counts, in seconds.
KEEP_S: Final = 5.0
#: How long a page waits for a measurement which is being made, in seconds.
WAIT_S: Final = 3.0
#: After so many seconds without a newer one, a measurement says nothing about the present.
OLD_S: Final = 60.0
_MIB: Final = 1 << 20


class Usage(Protocol):
    """What a guest uses; None where the hypervisor cannot tell.

    :ivar cpu_s: processor time, in seconds.
    :ivar memory: memory of the node, in MiB.
    :ivar disk_read: bytes which it has read from all its disks; and so on.
    """

    @property
    def cpu_s(self) -> float | None: ...
    @property
    def memory(self) -> int | None: ...
    @property
    def vcpus(self) -> int | None: ...
    @property
    def disk_read(self) -> int | None: ...
    @property
    def disk_written(self) -> int | None: ...
    @property
    def net_in(self) -> int | None: ...
    @property
    def net_out(self) -> int | None: ...


#: Returns what the guests of a hypervisor use, by name.
#: :raises errors.GenericError: the hypervisor does not answer.
Measure = Callable[[str], Mapping[str, Usage]]


class _Measured(NamedTuple):
    """The end of a measurement, in seconds of the clock; how long it took; its result.

    :ivar usages: None when the hypervisor could not be asked.
    """

    end_s: float
    duration_s: float
    usages: Mapping[str, Usage] | None


class GuestMetrics:
    """Measures the guests of this node when it is asked, and keeps the result for a short time.

    Requests come from several threads.

    :param hypervisors: returns the names of the enabled hypervisors.
    """

    def __init__(
        self,
        hypervisors: Callable[[], Sequence[str]],
        measure: Measure,
        *,
        monotonic: Callable[[], float] = clock.monotonic,
        wait_s: float = WAIT_S,
    ) -> None:
        self._hypervisors = hypervisors
        self._measure = measure
        self._monotonic = monotonic
        self._wait_s = wait_s
        self._lock = threading.Lock()
        self._results: dict[str, _Measured] = {}
        self._measuring: dict[str, threading.Thread] = {}
        self._failures: dict[str, str] = {}

    def families(self) -> list[Family]:
        """Return the metrics of all guests; a hypervisor which does not answer is marked."""
        names = list(dict.fromkeys(self._hypervisors()))
        with self._lock:
            threads = [thread for name in names if (thread := self._begin(name)) is not None]
        deadline = clock.monotonic() + self._wait_s
        for thread in threads:
            thread.join(max(0.0, deadline - clock.monotonic()))
        now = self._monotonic()
        with self._lock:
            results = {
                name: found
                for name in names
                if (found := self._results.get(name)) is not None and now - found.end_s < OLD_S
            }
            late = {name for name in names if name in self._measuring}
        return _families(names, results, late)

    def _begin(self, name: str) -> threading.Thread | None:
        """Begin to measure unless the last result still counts; return the thread which does."""
        last = self._results.get(name)
        running = self._measuring.get(name)
        if running is not None or (last is not None and self._monotonic() - last.end_s < KEEP_S):
            return running
        # One which never ends is not started a second time.
        started = shortage.start_thread(self._run, name, name=f"guests-{name}")
        if started is not None:
            self._measuring[name] = started
        return started

    def _run(self, name: str) -> None:
        begun = self._monotonic()
        problem, usages = "", None
        try:
            usages = self._measure(name)
        except Exception as err:  # noqa: BLE001  the guests of another hypervisor are still shown
            problem = str(err) or type(err).__name__
        end = self._monotonic()
        with self._lock:
            self._results[name] = _Measured(end, end - begun, usages)
            self._measuring.pop(name, None)
            before = self._failures.get(name, "")
            self._failures[name] = problem
        if problem and problem != before:
            _log.warning("the guests of %s cannot be measured: %s", name, problem)
        elif before and not problem:
            _log.info("the guests of %s can be measured again", name)


def _families(
    names: Sequence[str], results: Mapping[str, _Measured], late: set[str]
) -> list[Family]:
    """Return the metrics of the results.

    :param late: hypervisors which are still being asked.
    """
    measured = Family(
        "ganeti_node_guests_measured", GAUGE, "Whether the guests of a hypervisor could be measured"
    )
    duration = Family(
        "ganeti_node_guests_duration_seconds",
        GAUGE,
        "Time which the last measurement of the guests took",
        "seconds",
    )
    # A name belongs to one guest. A domain that nobody can attribute is in the answers of two
    # hypervisors, and a second sample with the same labels would spoil the whole page.
    guests: dict[str, Usage] = {}
    for name in names:
        found = results.get(name)
        known = found is not None and found.usages is not None
        measured.add(int(known and name not in late), hypervisor=name)
        if found is not None and found.usages is not None:
            duration.add(round(found.duration_s, 6), hypervisor=name)
            for guest, usage in found.usages.items():
                guests.setdefault(guest, usage)
    return [measured, duration, *_of_guests(guests)]


def _of_guests(guests: Mapping[str, Usage]) -> list[Family]:
    cpu = Family(
        "ganeti_node_guest_cpu_seconds", COUNTER, "Processor time which a guest has used", "seconds"
    )
    vcpus = Family("ganeti_node_guest_vcpus", GAUGE, "Virtual processors of a guest")
    memory = Family(
        "ganeti_node_guest_memory_bytes", GAUGE, "Memory of this node which a guest uses", "bytes"
    )
    read = Family(
        "ganeti_node_guest_disk_read_bytes",
        COUNTER,
        "Bytes read from the disks of a guest",
        "bytes",
    )
    written = Family(
        "ganeti_node_guest_disk_written_bytes",
        COUNTER,
        "Bytes written to the disks of a guest",
        "bytes",
    )
    received = Family(
        "ganeti_node_guest_network_received_bytes",
        COUNTER,
        "Bytes which a guest has received",
        "bytes",
    )
    sent = Family(
        "ganeti_node_guest_network_sent_bytes", COUNTER, "Bytes which a guest has sent", "bytes"
    )
    for guest, usage in sorted(guests.items()):
        cpu.add(usage.cpu_s, guest=guest)
        vcpus.add(usage.vcpus, guest=guest)
        memory.add(None if usage.memory is None else usage.memory * _MIB, guest=guest)
        read.add(usage.disk_read, guest=guest)
        written.add(usage.disk_written, guest=guest)
        received.add(usage.net_in, guest=guest)
        sent.add(usage.net_out, guest=guest)
    return [cpu, vcpus, memory, read, written, received, sent]
