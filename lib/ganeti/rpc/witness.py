"""Ask and inform the witness of a cluster with two master candidates.

Each change of the document is a loop: read, check, write under the condition that nothing has
changed. A write without an answer may have been carried out, so the document is read again; it has
a nonce which tells whether it is ours.

A document which is older than one that this process has seen was restored from a backup. It does
not count until the master has written it again, with the partner's agreement (:meth:`renew`).

Source: ``doc/design-auto-failover.rst``, *The witness of two nodes*; explored in
``test/unit/config/witness_model.py``.
"""

from __future__ import annotations

import logging
import os
import secrets
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Protocol

from ganeti import errors
from ganeti.config import witness
from ganeti.config.role import Standing
from ganeti.config.witness import Document
from ganeti.http.document import Access, Changed, DocumentError, Found, WebDocument
from ganeti.platform import paths
from ganeti.platform.master_epoch import Epoch
from ganeti.utils import clock

_log = logging.getLogger(__name__)

# The writers of :meth:`Witness.probe`, and how often they write.
_WRITERS = 4
_RACES = 10
# Both nodes may write at the same time; more attempts than these are a server which misbehaves.
_ATTEMPTS = 5


class WitnessError(errors.GenericError):
    """The witness does not answer, or its answer does not count."""


class HigherEpoch(WitnessError):
    """The witness has promised to obey another master.

    :ivar known: the epoch which it has promised.
    """

    def __init__(self, known: Epoch, master: str) -> None:
        super().__init__(
            f"the witness obeys master epoch {known.number}" + (f" of {master}" if master else "")
        )
        self.known = known


class Store(Protocol):
    """Where the document is; see :class:`ganeti.http.document.WebDocument`."""

    url: str

    def read(self) -> Found:
        """Read the document."""

    def replace(self, text: str, tag: str) -> None:
        """Write it if it is still the one with this tag."""

    def another(self) -> Store:
        """Return an object for the same document, which does not wait for this one."""


Change = Callable[[Document], Document | None]


class Witness:
    """The witness of a cluster. Thread-safe.

    :param cluster: UUID of the cluster.
    """

    def __init__(self, store: Store, cluster: str) -> None:
        self._store = store
        self._cluster = cluster
        self._lock = threading.Lock()
        self._newest = 0
        #: The document which was read or written last; None before.
        self.seen: Document | None = None

    @property
    def url(self) -> str:
        """The address of the document."""
        return self._store.url

    def follow(self, other: Witness) -> None:
        """Remember how new the document was which another object for it has seen."""
        self._newest = max(self._newest, other._newest)

    def read(self) -> Document:
        """Read the document.

        :raises WitnessError: no answer, no document, a foreign one, or an old one.
        """
        with self._lock:
            return self._read()[0]

    def promise(self, epoch: Epoch, master: str) -> Standing:
        """Let the witness promise to obey an epoch and no lower one.

        :param master: name of the node which takes the role.
        :raises HigherEpoch: it has promised a higher one.
        :raises WitnessError: it does not answer, or there is no document.
        """

        def change(found: Document) -> Document | None:
            if found.epoch > epoch:
                raise HigherEpoch(found.epoch, found.master)
            if (found.epoch, found.master) == (epoch, master):
                return None
            return found._replace(epoch=epoch, master=master)

        return self._change(change).standing()

    def record(
        self,
        epoch: Epoch,
        master: str,
        *,
        config_serial: int = 0,
        last_job: int = 0,
    ) -> None:
        """Let the witness know how far a master has got; it never goes back.

        :param config_serial: serial number of a configuration; 0 for none.
        :param last_job: number of a job; 0 for none.
        :raises HigherEpoch: it obeys another master.
        :raises WitnessError: it does not answer, or there is no document.
        """

        def change(found: Document) -> Document | None:
            wanted = _advanced(found, epoch, master, config_serial, last_job)
            return None if wanted == found else wanted

        self._change(change)

    def renew(
        self, epoch: Epoch, master: str, *, config_serial: int = 0, touch: bool = False
    ) -> bool:
        """Write the state of a master, even if there is no document, or an old one.

        The caller has made sure that the partner obeys this master and has its present state.

        :param config_serial: as in :meth:`record`.
        :param touch: write it also when nothing has changed.
        :returns: whether the document was missing or old.
        :raises HigherEpoch: the witness obeys another master.
        :raises WitnessError: it does not answer, or the document is foreign.
        """
        with self._lock:
            for _ in range(_ATTEMPTS):
                found, tag = self._fetch()
                lost = found is None or found.generation < self._newest
                base = found or Document(self._cluster)
                wanted = _advanced(base, epoch, master, config_serial, 0)
                if wanted == found and not lost and not touch:
                    self._note(wanted)
                    return False
                if self._write(wanted, tag):
                    return lost
            raise WitnessError(f"{self.url}: the document changes all the time")

    def probe(self) -> None:
        """Check that the server keeps the conditions of writes, on the present document.

        :raises WitnessError: it does not.
        """
        with self._lock:
            found, tag = self._fetch()
            if found is None:
                raise WitnessError(f"{self.url}: the document is missing")
            for wrong in ('"no-such-tag"', ""):
                try:
                    self._store.replace(witness.text_of(found), wrong)
                except Changed:
                    continue
                except DocumentError as err:
                    raise WitnessError(str(err)) from err
                raise WitnessError(
                    f"{self.url}: the server carries out a write whose condition"
                    f" ({'If-Match' if wrong else 'If-None-Match'}) does not hold, so it cannot be"
                    " a witness"
                )
            if not self._write(found, tag):
                raise WitnessError(f"{self.url}: the document was changed by another program")
            if self._fetch()[1] == tag:
                raise WitnessError(
                    f"{self.url}: the server gives two documents the same entity tag (ETag), so it"
                    " cannot be a witness"
                )
            self._race()

    def _race(self) -> None:
        """Let several writers replace the same content at once, again and again.

        A server which compares the tag first and writes afterwards accepts two of them. That it
        does not is not a proof, but servers which do are common.
        """
        stores = [self._store.another() for _ in range(_WRITERS)]
        with ThreadPoolExecutor(_WRITERS) as pool:
            for _ in range(_RACES):
                found, tag = self._fetch()
                if found is None:
                    raise WitnessError(f"{self.url}: the document is missing")
                texts = [witness.text_of(self._successor(found)) for _ in stores]
                write = partial(_written, tag, threading.Barrier(_WRITERS))
                try:
                    won = sum(pool.map(write, stores, texts))
                except DocumentError as err:
                    raise WitnessError(str(err)) from err
                if won > 1:
                    raise WitnessError(
                        f"{self.url}: {won} of {_WRITERS} writers replaced the same document at the"
                        " same time. The server does not compare the tag and write in one step, so"
                        " it cannot be a witness"
                    )
            last = self._fetch()[0]
            if last is not None:
                self._note(last)

    # -- one step --------------------------------------------------------------------------------

    def _change(self, change: Change) -> Document:
        with self._lock:
            for _ in range(_ATTEMPTS):
                found, tag = self._read()
                wanted = change(found)
                if wanted is None:
                    return found
                if self._write(wanted, tag):
                    assert self.seen is not None
                    return self.seen
            raise WitnessError(f"{self.url}: the document changes all the time")

    def _read(self) -> tuple[Document, str]:
        found, tag = self._fetch()
        if found is None:
            raise WitnessError(
                f"{self.url}: the document is missing. The master writes it again when its partner"
                " answers."
            )
        if found.generation < self._newest:
            raise WitnessError(
                f"{self.url}: the document is older than one which was there before. The master"
                " writes it again when its partner answers."
            )
        self._note(found)
        return found, tag

    def _fetch(self) -> tuple[Document | None, str]:
        try:
            text, tag = self._store.read()
            found = None if text is None else witness.parse_document(text)
        except (DocumentError, errors.ParseError) as err:
            raise WitnessError(f"{err}" if self.url in str(err) else f"{self.url}: {err}") from err
        if found is not None and found.cluster != self._cluster:
            raise WitnessError(f"{self.url}: the document belongs to another cluster")
        return found, tag

    def _write(self, wanted: Document, tag: str) -> bool:
        """Write a document; False when it has changed meanwhile."""
        wanted = self._successor(wanted)
        try:
            self._store.replace(witness.text_of(wanted), tag)
        except Changed:
            # A request which was sent twice may have been carried out and refused.
            if self._fetch()[0] != wanted:
                return False
        except DocumentError as err:
            raise WitnessError(str(err)) from err
        self._note(wanted)
        return True

    def _successor(self, document: Document) -> Document:
        return document._replace(
            generation=max(document.generation, self._newest) + 1,
            nonce=secrets.token_hex(8),
            written=float(int(clock.now())),
        )

    def _note(self, document: Document) -> None:
        self._newest = max(self._newest, document.generation)
        self.seen = document


def _written(tag: str, barrier: threading.Barrier, store: Store, text: str) -> bool:
    """Write when all writers are ready; return whether the server accepted it."""
    try:
        store.read()
    finally:
        barrier.wait()
    try:
        store.replace(text, tag)
    except Changed:
        return False
    return True


def _advanced(
    found: Document, epoch: Epoch, master: str, config_serial: int, last_job: int
) -> Document:
    """Return the document with what a master has done.

    :raises HigherEpoch: the witness obeys another master.
    """
    if found.epoch > epoch:
        raise HigherEpoch(found.epoch, found.master)
    config, jobs = found.config, found.jobs
    if config_serial:
        config = max(config, (epoch, config_serial))
    if last_job:
        jobs = max(jobs, (epoch, last_job))
    return found._replace(epoch=epoch, master=master, config=config, jobs=jobs)


def open_witness(url: str, cluster: str, here: paths.Paths | None = None) -> Witness:
    """Return the witness of the cluster, with the credentials of this node.

    :param url: the parameter ``witness``.
    :param cluster: UUID of the cluster.
    """
    here = here or paths.current()
    ca_file, auth_file = here.witness_ca_file, here.witness_auth_file
    access = Access(
        ca_file if os.path.exists(ca_file) else "",
        auth_file if os.path.exists(auth_file) else "",
    )
    return Witness(WebDocument(url, access), cluster)
