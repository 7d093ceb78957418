"""The witness in the master daemon: informed when the partner lacks a change, and polled.

A thread reads the document regularly. When it has promised a higher epoch, another master has taken
over and this one ends. When the document is missing, or older than it was, the thread writes it
again, as soon as the partner obeys this master and has all changes; until then the witness does not
count. The log gets a line when that changes.

Source: ``doc/design-auto-failover.rst``, *The witness of two nodes*.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from ganeti import errors
from ganeti.config import Config
from ganeti.master.fence import Fence
from ganeti.objects import ConfigData
from ganeti.replication.majority import WITNESS
from ganeti.replication.quorum import members, online_candidates
from ganeti.rpc import RpcRunner
from ganeti.rpc.witness import HigherEpoch, Witness, WitnessError, open_witness
from ganeti.utils import shortage
from ganeti.wire.calls import MASTER_VOTE

_log = logging.getLogger(__name__)

#: Seconds between two polls; when the witness does not answer, and otherwise.
RETRY_S, POLL_S = 0.5, 10.0
# How often, and after which pauses in seconds, the candidates are asked before a server is set up.
_ATTEMPTS = 6
_PAUSE_S = 0.5


class MasterWitness:
    """The witness of the present configuration; does nothing while there is none.

    :param last_job: returns the highest job id.
    """

    def __init__(
        self,
        config: Config,
        runner: RpcRunner,
        fence: Fence,
        last_job: Callable[[], int] = lambda: 0,
        opened: Callable[[str, str], Witness] = open_witness,
    ) -> None:
        self._config = config
        self._runner = runner
        self._fence = fence
        self.last_job = last_job
        self._open = opened
        self._lock = threading.Lock()
        self._witness: Witness | None = None
        self._stop = threading.Event()
        self._soon = threading.Event()
        self._said: str | None = None

    # -- when a change needs it ------------------------------------------------------------------

    def record_config(self, data: ConfigData) -> str | None:
        """Inform the witness of a configuration; see :data:`ganeti.replication.quorum.Record`."""
        return self._record(data, config_serial=data.serial_no)

    def needed(self) -> bool:
        """Tell whether a job which no other candidate has needs the witness."""
        data = self._config.snapshot()
        return WITNESS in members(data) and not self._config.is_alone()

    def record(self, last_job: int) -> str | None:
        """Inform the witness of the number of a job; return why that failed, or None."""
        return self._record(self._config.snapshot(), last_job=last_job)

    def _record(self, data: ConfigData, *, config_serial: int = 0, last_job: int = 0) -> str | None:
        found = self.of(data)
        if found is None:
            return "the cluster has no witness"
        try:
            found.record(
                self._fence.epoch,
                self._name(data),
                config_serial=config_serial,
                last_job=last_job,
            )
        except HigherEpoch as err:
            self._fence.newer("the witness", str(err.known))
            return str(err)
        except WitnessError as err:
            self.poll_soon()
            return str(err)
        # An older document may have been restored meanwhile, while this node obeys another master.
        self._fence.check()
        return None

    def of(self, data: ConfigData) -> Witness | None:
        """Return the witness of a configuration; None without one."""
        url = data.cluster.witness
        if not url:
            return None
        with self._lock:
            if self._witness is None or self._witness.url != url:
                self._witness = self._open(url, data.cluster.uuid)
            return self._witness

    def set_up(self, url: str) -> None:
        """Check a server, and write the first document there; before the cluster uses it.

        :raises WitnessError: it cannot be the witness.
        """
        data = self._config.snapshot()
        found = self._open(url, data.cluster.uuid)
        present = self.of(data)
        if present is not None and present.url == url:
            found.follow(present)
        if self._agree_soon(data):
            found.renew(self._fence.epoch, self._name(data), touch=True)
        else:
            # A document which is missing may have been promised to the other node.
            found.record(self._fence.epoch, self._name(data))
        found.probe()
        with self._lock:
            if self._witness is not None and self._witness.url == url:
                # The files with its credentials may be new.
                self._witness = found

    def _agree_soon(self, data: ConfigData) -> bool:
        """Return True if all candidates have everything.

        The job which asks is just on its way to them.
        """
        for _ in range(_ATTEMPTS):
            if self._all_agree(data):
                return True
            if self._stop.wait(_PAUSE_S):
                break
        return False

    @staticmethod
    def _name(data: ConfigData) -> str:
        return data.nodes[data.cluster.master_node].name.lower()

    # -- the thread ------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread which polls the witness."""
        threading.Thread(target=self._watch, name="witness", daemon=True).start()

    def stop(self) -> None:
        """End the thread."""
        self._stop.set()
        self._soon.set()

    def poll_soon(self) -> None:
        """Let the thread look at the witness now, and not after the rest of a pause."""
        self._soon.set()

    def _watch(self) -> None:
        while True:
            try:
                with shortage.as_error():
                    text = self.poll()
            except errors.GenericError as err:
                text = str(err)
            self._say(text)
            self._soon.wait(RETRY_S if text else POLL_S)
            self._soon.clear()
            if self._stop.is_set():
                return

    def _say(self, text: str | None) -> None:
        if text == self._said:
            return
        if text:
            _log.warning("the witness does not count: %s", text)
        elif self._said:
            _log.info("the witness counts again")
        self._said = text

    def poll(self, *, touch: bool = False) -> str | None:
        """Read the witness, and write its document if that is possible and needed.

        :param touch: write it also when that is not needed, to check that it can be written.
        :returns: why it does not count, or nothing; None if the cluster has none, or needs none.
        """
        data = self._config.snapshot()
        found = self.of(data)
        if found is None or WITNESS not in members(data):
            return None
        epoch = self._fence.epoch
        try:
            if self._all_agree(data):
                lost = found.renew(
                    epoch,
                    self._name(data),
                    touch=touch,
                )
                if lost:
                    _log.warning(
                        "the document of the witness was missing or older than it was; it was"
                        " written again"
                    )
            else:
                found.record(epoch, self._name(data))
        except HigherEpoch as err:
            self._fence.newer("the witness", str(err.known))
            return str(err)
        except WitnessError as err:
            return str(err)
        return ""

    def _all_agree(self, data: ConfigData) -> bool:
        """Return True if all candidates obey this master now and have its configuration and
        jobs.
        """
        lagging = self._config.lagging()
        others = [uuid for uuid in online_candidates(data) if uuid != data.cluster.master_node]
        if any(uuid in lagging for uuid in others):
            return False
        last_job = self.last_job()
        for answer in self._runner.call_many(MASTER_VOTE, others).values():
            if answer.failure is not None:
                return False
            vote = answer.data
            if (
                vote.epoch != str(self._fence.epoch)
                or vote.config_serial < data.serial_no
                or vote.last_job < last_job
            ):
                return False
        return True
