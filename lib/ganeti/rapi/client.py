"""A client of the REST interface, for programs by others.

This file imports no other module of the project, so it can be copied to any place; it needs Python
and pycurl. Classes, methods and constants have their published names::

    from ganeti.rapi import client

    cluster = client.GanetiRapiClient("cluster.example.com", username="jack", password="secret")
    job = cluster.StartupInstance("web1.example.com")
    if not cluster.WaitForJobCompletion(job):
        print(cluster.GetJobStatus(job)["opresult"])

Methods which change something return the number of a job, unless they say otherwise. All methods
raise :class:`GanetiApiError`, whose ``code`` is the HTTP status, and :class:`CertificateError`
when the server cannot prove who it is.

``GenericCurlConfig`` makes the settings of the connection, such as the file with the authority's
certificate; without them no certificate is checked, as the server's is usually its own authority.
"""

# ruff: noqa: N802 - the names of methods are published

from __future__ import annotations

import functools
import html
import io
import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote, urlencode

import pycurl

GANETI_RAPI_PORT: Final = 5080
GANETI_RAPI_VERSION: Final = 2

HTTP_DELETE: Final = "DELETE"
HTTP_GET: Final = "GET"
HTTP_PUT: Final = "PUT"
HTTP_POST: Final = "POST"
HTTP_OK: Final = 200
HTTP_NOT_FOUND: Final = 404
HTTP_APP_JSON: Final = "application/json"

REPLACE_DISK_PRI: Final = "replace_on_primary"
REPLACE_DISK_SECONDARY: Final = "replace_on_secondary"
REPLACE_DISK_CHG: Final = "replace_new_secondary"
REPLACE_DISK_AUTO: Final = "replace_auto"

NODE_EVAC_PRI: Final = "primary-only"
NODE_EVAC_SEC: Final = "secondary-only"
NODE_EVAC_ALL: Final = "all"

NODE_ROLE_DRAINED: Final = "drained"
NODE_ROLE_MASTER_CANDIDATE: Final = "master-candidate"
NODE_ROLE_MASTER: Final = "master"
NODE_ROLE_OFFLINE: Final = "offline"
NODE_ROLE_REGULAR: Final = "regular"

JOB_STATUS_QUEUED: Final = "queued"
JOB_STATUS_WAITING: Final = "waiting"
JOB_STATUS_CANCELING: Final = "canceling"
JOB_STATUS_RUNNING: Final = "running"
JOB_STATUS_CANCELED: Final = "canceled"
JOB_STATUS_SUCCESS: Final = "success"
JOB_STATUS_ERROR: Final = "error"
JOB_STATUS_PENDING: Final = frozenset((JOB_STATUS_QUEUED, JOB_STATUS_WAITING, JOB_STATUS_CANCELING))
JOB_STATUS_FINALIZED: Final = frozenset((JOB_STATUS_CANCELED, JOB_STATUS_SUCCESS, JOB_STATUS_ERROR))
JOB_STATUS_ALL: Final = JOB_STATUS_PENDING | JOB_STATUS_FINALIZED | {JOB_STATUS_RUNNING}
# The name of a waiting job in older programs.
JOB_STATUS_WAITLOCK: Final = JOB_STATUS_WAITING

ECODE_RESOLVER: Final = "resolver_error"
ECODE_NORES: Final = "insufficient_resources"
ECODE_TEMP_NORES: Final = "temp_insufficient_resources"
ECODE_INVAL: Final = "wrong_input"
ECODE_STATE: Final = "wrong_state"
ECODE_NOENT: Final = "unknown_entity"
ECODE_EXISTS: Final = "already_exists"
ECODE_NOTUNIQUE: Final = "resource_not_unique"
ECODE_FAULT: Final = "internal_error"
ECODE_ENVIRON: Final = "environment_error"
ECODE_ALL: Final = frozenset(
    (
        ECODE_RESOLVER,
        ECODE_NORES,
        ECODE_TEMP_NORES,
        ECODE_INVAL,
        ECODE_STATE,
        ECODE_NOENT,
        ECODE_EXISTS,
        ECODE_NOTUNIQUE,
        ECODE_FAULT,
        ECODE_ENVIRON,
    )
)

INST_CREATE_REQV1: Final = "instance-create-reqv1"
INST_REINSTALL_REQV1: Final = "instance-reinstall-reqv1"
NODE_MIGRATE_REQV1: Final = "node-migrate-reqv1"
NODE_EVAC_RES1: Final = "node-evac-res1"

_VERSION_FIELD: Final = "__version__"
# Errors of libcurl: the certificate is wrong, or the file with the authorities is unreadable.
_CERTIFICATE_ERRORS: Final = frozenset((51, 60, 77, 83))

CurlConfig = Callable[[pycurl.Curl, logging.Logger], None]
Query = list[tuple[str, Any]]


class Error(Exception):
    """Base class of the errors of this module."""


class GanetiApiError(Error):
    """The server refused the request, or could not be reached.

    :ivar code: HTTP status; None when there was no answer.
    """

    def __init__(self, msg: str, code: int | None = None) -> None:
        super().__init__(msg)
        self.code = code


class CertificateError(GanetiApiError):
    """The certificate of the server is not trusted."""


def EpochNano() -> int:
    """Return the present time in nanoseconds since 1970, for reason trails."""
    return int(time.time() * 1_000_000_000)


def UsesRapiClient(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator for functions which use the client: initialise libcurl, and clean up afterwards."""

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        pycurl.global_init(pycurl.GLOBAL_ALL)
        try:
            return fn(*args, **kwargs)
        finally:
            # Another thread may use libcurl; the end of the program cleans up, too.
            if threading.active_count() == 1:
                pycurl.global_cleanup()

    return wrapper


def GenericCurlConfig(
    verbose: bool = False,
    use_signal: bool = False,
    use_curl_cabundle: bool = False,
    cafile: str | None = None,
    capath: str | None = None,
    proxy: str | None = None,
    verify_hostname: bool = False,
    connect_timeout: int | None = None,
    timeout: int | None = None,
    _pycurl_version_fn: Callable[[], tuple[Any, ...]] = pycurl.version_info,
) -> CurlConfig:
    """Settings for connections.

    :param use_signal: let libcurl use signals, which is wrong in programs with threads.
    :param use_curl_cabundle: trust the authorities which libcurl trusts.
    :param cafile: file with the certificates of authorities to trust.
    :param capath: directory with such files.
    :param verify_hostname: the certificate must have the name of the server.
    :param connect_timeout: seconds to connect.
    :param timeout: seconds for a request.
    :raises Error: the settings exclude each other, or libcurl does not support them.
    """
    if use_curl_cabundle and (cafile or capath):
        raise Error("cannot trust both libcurl's authorities and others")
    if capath:
        backend = str(_pycurl_version_fn()[5] or "").partition("/")[0].lower()
        if backend not in ("openssl", "libressl", "boringssl", "wolfssl", "nss"):
            raise Error(f"libcurl with {backend or 'no TLS'} cannot use a directory of authorities")

    def configure(curl: pycurl.Curl, logger: logging.Logger) -> None:
        curl.setopt(pycurl.VERBOSE, verbose)
        curl.setopt(pycurl.NOSIGNAL, not use_signal)
        if proxy is not None:
            curl.setopt(pycurl.PROXY, str(proxy))
        curl.setopt(pycurl.SSL_VERIFYHOST, 2 if verify_hostname else 0)
        verify = bool(cafile or capath or use_curl_cabundle)
        curl.setopt(pycurl.SSL_VERIFYPEER, verify)
        if cafile:
            curl.setopt(pycurl.CAINFO, str(cafile))
        if capath:
            curl.setopt(pycurl.CAPATH, str(capath))
        if not verify:
            logger.debug("the server's certificate is not checked")
        if connect_timeout is not None:
            curl.setopt(pycurl.CONNECTTIMEOUT, connect_timeout)
        if timeout is not None:
            curl.setopt(pycurl.TIMEOUT, timeout)

    return configure


def _given(**values: Any) -> dict[str, Any]:
    """Return the members which are not None."""
    return {name: value for name, value in values.items() if value is not None}


def _options(
    reason: str | None = None, *, dry_run: bool = False, force: bool = False, **values: Any
) -> Query:
    """Return the arguments of the query."""
    found: Query = []
    if dry_run:
        found.append(("dry-run", 1))
    if force:
        found.append(("force", 1))
    found += [
        (
            name.replace("_", "-") if name == "auto_promote" else name,
            int(value) if isinstance(value, bool) else value,
        )
        for name, value in values.items()
        if value is not None
    ]
    if reason:
        found.append(("reason", reason))
    return found


def _error_text(body: Mapping[str, Any], status: int) -> str:
    """Return the text of an error, with the reason which this server adds for a 404."""
    # Servers of other versions escape the text for browsers.
    words = [html.unescape(str(body.get(key, ""))) for key in ("message", "explain")]
    text = f"{body.get('code', status)} {words[0]}: {words[1]}"
    reason = str(body.get("reason") or words[1])
    return text if reason == words[1] else f"{text} ({reason})"


def _names(items: Iterable[Mapping[str, Any]], key: str) -> list[Any]:
    return [item[key] for item in items]


class GanetiRapiClient:
    """The REST interface of a cluster.

    A connection is made for each request, so an object may be used by several threads.

    :param curl_config_fn: see :func:`GenericCurlConfig`.
    :param curl_factory: makes the handles of libcurl; for tests.
    """

    USER_AGENT = "Ganeti RAPI Client"

    def __init__(
        self,
        host: str,
        port: int = GANETI_RAPI_PORT,
        username: str | None = None,
        password: str | None = None,
        logger: Any = logging,
        curl_config_fn: CurlConfig | None = None,
        curl_factory: Callable[[], pycurl.Curl] | None = None,
    ) -> None:
        if password is not None and username is None:
            raise Error("a password without a user name")
        self._username = username
        self._password = password
        self._logger = logger
        self._curl_config_fn = curl_config_fn
        self._curl_factory = curl_factory
        # A URL has an IPv6 address in brackets.
        shown = f"[{host}]" if ":" in host and not host.startswith("[") else host
        self._base_url = f"https://{shown}:{port}"

    # -- transport -------------------------------------------------------------------------------

    def _CreateCurl(self) -> pycurl.Curl:
        curl = (self._curl_factory or pycurl.Curl)()
        curl.setopt(pycurl.VERBOSE, False)
        curl.setopt(pycurl.FOLLOWLOCATION, False)
        curl.setopt(pycurl.NOSIGNAL, True)
        curl.setopt(pycurl.USERAGENT, self.USER_AGENT)
        curl.setopt(pycurl.SSL_VERIFYHOST, 0)
        curl.setopt(pycurl.SSL_VERIFYPEER, False)
        # No "Expect" before a large body: it costs a second with servers which do not answer it.
        curl.setopt(
            pycurl.HTTPHEADER,
            [f"Accept: {HTTP_APP_JSON}", f"Content-type: {HTTP_APP_JSON}", "Expect:"],
        )
        if self._username is not None:
            curl.setopt(pycurl.HTTPAUTH, pycurl.HTTPAUTH_BASIC)
            curl.setopt(pycurl.USERNAME, self._username)
            curl.setopt(pycurl.PASSWORD, self._password or "")
        if self._curl_config_fn is not None:
            self._curl_config_fn(curl, self._logger)
        return curl

    def _SendRequest(self, method: str, path: str, query: Query | None, content: Any) -> Any:
        """Send a request and return the value in its answer.

        :param content: body, as a value; None for no body.
        :raises CertificateError: the certificate of the server is not trusted.
        :raises GanetiApiError: the server cannot be reached, or refused the request.
        """
        url = self._base_url + path
        if query:
            url += "?" + urlencode(query)
        curl = self._CreateCurl()
        received = io.BytesIO()
        try:
            curl.setopt(pycurl.CUSTOMREQUEST, method)
            curl.setopt(pycurl.URL, url)
            curl.setopt(pycurl.WRITEFUNCTION, received.write)
            if content is not None:
                curl.setopt(pycurl.POSTFIELDS, json.dumps(content))
            elif method in (HTTP_PUT, HTTP_POST):
                curl.setopt(pycurl.POSTFIELDS, "")
                # A request without a body has no content type.
                curl.setopt(
                    pycurl.HTTPHEADER, [f"Accept: {HTTP_APP_JSON}", "Content-Type:", "Expect:"]
                )
            self._logger.debug("%s %s", method, url)
            try:
                curl.perform()
            except pycurl.error as err:
                code, message = (*err.args, "", "")[:2]
                kind = CertificateError if code in _CERTIFICATE_ERRORS else GanetiApiError
                raise kind(f"cannot talk to {self._base_url}: {message}") from err
            status = int(curl.getinfo(pycurl.RESPONSE_CODE))
        finally:
            curl.close()
        text = received.getvalue().decode("utf-8", "replace")
        try:
            value = json.loads(text) if text else None
        except ValueError:
            value = text
        if status == HTTP_OK:
            return value
        if isinstance(value, dict) and "message" in value:
            raise GanetiApiError(_error_text(value, status), code=status)
        raise GanetiApiError(str(value), code=status)

    def _get(self, path: str, query: Query | None = None, content: Any = None) -> Any:
        return self._SendRequest(HTTP_GET, path, query, content)

    def _put(self, path: str, query: Query | None = None, content: Any = None) -> Any:
        return self._SendRequest(HTTP_PUT, path, query, content)

    def _post(self, path: str, query: Query | None = None, content: Any = None) -> Any:
        return self._SendRequest(HTTP_POST, path, query, content)

    def _delete(self, path: str, query: Query | None = None, content: Any = None) -> Any:
        return self._SendRequest(HTTP_DELETE, path, query, content)

    def _list(self, kind: str, key: str, bulk: bool, reason: str | None) -> Any:
        path = f"/{GANETI_RAPI_VERSION}/{kind}"
        if bulk:
            return self._get(path, _options(reason, bulk=1))
        return _names(self._get(path, _options(reason)), key)

    @staticmethod
    def _path(kind: str, name: Any = None, *more: Any) -> str:
        words = [str(word) for word in (name, *more) if word is not None]
        return "/".join([f"/{GANETI_RAPI_VERSION}/{kind}", *(quote(word, "") for word in words)])

    # -- the cluster -----------------------------------------------------------------------------

    def GetVersion(self) -> int:
        """Return the version of the interface."""
        return int(self._get("/version"))

    def GetFeatures(self) -> list[str]:
        """Return the features of the server; an empty list for old servers."""
        try:
            return list(self._get(self._path("features")))
        except GanetiApiError as err:
            if err.code == HTTP_NOT_FOUND:
                return []
            raise

    def GetOperatingSystems(self, reason: str | None = None) -> list[str]:
        """Return the operating systems which can be installed."""
        return list(self._get(self._path("os"), _options(reason)))

    def GetInfo(self, reason: str | None = None) -> dict[str, Any]:
        """Return the description of the cluster."""
        return dict(self._get(self._path("info"), _options(reason)))

    def RedistributeConfig(self, reason: str | None = None) -> int:
        """Send the configuration to all nodes again."""
        return int(self._put(self._path("redistribute-config"), _options(reason)))

    def ModifyCluster(self, reason: str | None = None, **kwargs: Any) -> int:
        """Change the parameters of the cluster."""
        return int(self._put(self._path("modify"), _options(reason), kwargs))

    # -- instances -------------------------------------------------------------------------------

    def GetInstances(self, bulk: bool = False, reason: str | None = None) -> list[Any]:
        """Return the names of the instances, or whole objects."""
        return list(self._list("instances", "id", bulk, reason))

    def GetInstance(self, instance: str, reason: str | None = None) -> dict[str, Any]:
        """Return the description of an instance."""
        return dict(self._get(self._path("instances", instance), _options(reason)))

    def GetInstanceInfo(
        self, instance: str, static: bool | None = None, reason: str | None = None
    ) -> int:
        """Describe an instance with all details, in the result of the job."""
        return int(
            self._get(self._path("instances", instance, "info"), _options(reason, static=static))
        )

    @staticmethod
    def _UpdateWithKwargs(base: dict[str, Any], **kwargs: Any) -> None:
        twice = sorted(set(base) & set(kwargs))
        if twice:
            raise GanetiApiError(f"given twice: {', '.join(twice)}")
        base.update(kwargs)

    def InstanceAllocation(
        self,
        mode: str,
        name: str,
        disk_template: str,
        disks: Sequence[Mapping[str, Any]],
        nics: Sequence[Mapping[str, Any]],
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Return the specification of an instance for :meth:`InstancesMultiAlloc`."""
        base: dict[str, Any] = {
            _VERSION_FIELD: 1,
            "mode": mode,
            "name": name,
            "disk_template": disk_template,
            "disks": disks,
            "nics": nics,
        }
        self._UpdateWithKwargs(base, **kwargs)
        return base

    def InstancesMultiAlloc(
        self, instances: Sequence[Mapping[str, Any]], reason: str | None = None, **kwargs: Any
    ) -> int:
        """Create several instances, placed together."""
        dry_run = bool(kwargs.pop("dry_run", False))
        body: dict[str, Any] = {"instances": instances}
        self._UpdateWithKwargs(body, **kwargs)
        return int(
            self._post(self._path("instances-multi-alloc"), _options(reason, dry_run=dry_run), body)
        )

    def CreateInstance(
        self,
        mode: str,
        name: str,
        disk_template: str,
        disks: Sequence[Mapping[str, Any]],
        nics: Sequence[Mapping[str, Any]],
        reason: str | None = None,
        **kwargs: Any,
    ) -> int:
        """Create an instance; further parameters by their names, and ``dry_run``."""
        dry_run = bool(kwargs.pop("dry_run", False))
        if INST_CREATE_REQV1 not in self.GetFeatures():
            raise GanetiApiError("the server is too old for this way to create instances")
        body = self.InstanceAllocation(mode, name, disk_template, disks, nics, **kwargs)
        return int(self._post(self._path("instances"), _options(reason, dry_run=dry_run), body))

    def DeleteInstance(
        self, instance: str, dry_run: bool = False, reason: str | None = None, **kwargs: Any
    ) -> int:
        """Remove an instance."""
        return int(
            self._delete(
                self._path("instances", instance), _options(reason, dry_run=dry_run), kwargs or None
            )
        )

    def ModifyInstance(self, instance: str, reason: str | None = None, **kwargs: Any) -> int:
        """Change the parameters of an instance."""
        return int(self._put(self._path("instances", instance, "modify"), _options(reason), kwargs))

    def ActivateInstanceDisks(
        self, instance: str, ignore_size: bool | None = None, reason: str | None = None
    ) -> int:
        """Activate the disks on the nodes of an instance."""
        return int(
            self._put(
                self._path("instances", instance, "activate-disks"),
                _options(reason, ignore_size=ignore_size),
            )
        )

    def DeactivateInstanceDisks(
        self, instance: str, reason: str | None = None, force: bool = False
    ) -> int:
        """Deactivate the disks of an instance."""
        return int(
            self._put(
                self._path("instances", instance, "deactivate-disks"), _options(reason, force=force)
            )
        )

    def RecreateInstanceDisks(
        self,
        instance: str,
        disks: Sequence[Any] | None = None,
        nodes: Sequence[str] | None = None,
        reason: str | None = None,
        iallocator: str | None = None,
    ) -> int:
        """Recreate lost disks, empty."""
        return int(
            self._post(
                self._path("instances", instance, "recreate-disks"),
                _options(reason),
                _given(disks=disks, nodes=nodes, iallocator=iallocator),
            )
        )

    def GrowInstanceDisk(
        self,
        instance: str,
        disk: int,
        amount: int,
        wait_for_sync: bool | None = None,
        reason: str | None = None,
    ) -> int:
        """Grow a disk by `amount` MiB."""
        return int(
            self._post(
                self._path("instances", instance, "disk", disk, "grow"),
                _options(reason),
                _given(amount=amount, wait_for_sync=wait_for_sync),
            )
        )

    def GetInstanceSnapshots(self, instance: str, reason: str | None = None) -> int:
        """List the snapshots of the disks of an instance, in the result of the job."""
        return int(self._get(self._path("instances", instance, "snapshots"), _options(reason)))

    def SnapshotInstance(
        self,
        instance: str,
        snapshot_name: str | None = None,
        disks: list[int] | None = None,
        shutdown: bool | None = None,
        shutdown_timeout: int | None = None,
        dry_run: bool = False,
        reason: str | None = None,
    ) -> int:
        """Make a snapshot of disks; the result of the job is its name."""
        return int(
            self._post(
                self._path("instances", instance, "snapshots"),
                _options(reason, dry_run=dry_run),
                _given(
                    snapshot_name=snapshot_name,
                    disks=disks,
                    shutdown=shutdown,
                    shutdown_timeout=shutdown_timeout,
                ),
            )
        )

    def DeleteInstanceSnapshot(
        self, instance: str, snapshot_name: str, dry_run: bool = False, reason: str | None = None
    ) -> int:
        """Remove a snapshot."""
        return int(
            self._delete(
                self._path("instances", instance, "snapshots", snapshot_name),
                _options(reason, dry_run=dry_run),
            )
        )

    def RestoreInstanceSnapshot(
        self, instance: str, snapshot_name: str, dry_run: bool = False, reason: str | None = None
    ) -> int:
        """Restore the disks of a stopped instance from a snapshot."""
        return int(
            self._post(
                self._path("instances", instance, "snapshots", snapshot_name, "restore"),
                _options(reason, dry_run=dry_run),
            )
        )

    def RebootInstance(
        self,
        instance: str,
        reboot_type: str | None = None,
        ignore_secondaries: bool | None = None,
        dry_run: bool = False,
        reason: str | None = None,
        **kwargs: Any,
    ) -> int:
        """Reboot an instance: ``soft``, ``hard`` or ``full``."""
        return int(
            self._post(
                self._path("instances", instance, "reboot"),
                _options(
                    reason, dry_run=dry_run, type=reboot_type, ignore_secondaries=ignore_secondaries
                ),
                kwargs or None,
            )
        )

    def ShutdownInstance(
        self,
        instance: str,
        dry_run: bool = False,
        no_remember: bool = False,
        reason: str | None = None,
        **kwargs: Any,
    ) -> int:
        """Stop an instance."""
        return int(
            self._put(
                self._path("instances", instance, "shutdown"),
                _options(reason, dry_run=dry_run, no_remember=no_remember or None),
                kwargs or None,
            )
        )

    def StartupInstance(
        self,
        instance: str,
        dry_run: bool = False,
        no_remember: bool = False,
        reason: str | None = None,
    ) -> int:
        """Start an instance."""
        return int(
            self._put(
                self._path("instances", instance, "startup"),
                _options(reason, dry_run=dry_run, no_remember=no_remember or None),
            )
        )

    def ReinstallInstance(
        self,
        instance: str,
        os: str | None = None,
        no_startup: bool = False,
        osparams: Mapping[str, Any] | None = None,
        reason: str | None = None,
    ) -> int:
        """Reinstall the operating system."""
        path = self._path("instances", instance, "reinstall")
        if INST_REINSTALL_REQV1 in self.GetFeatures():
            body = {"start": not no_startup, **_given(os=os, osparams=osparams)}
            return int(self._post(path, _options(reason), body))
        if osparams:
            raise GanetiApiError("the server is too old to take parameters of the OS")
        return int(self._post(path, _options(reason, os=os, nostartup=no_startup or None)))

    def ReplaceInstanceDisks(
        self,
        instance: str,
        disks: Sequence[int] | None = None,
        mode: str = REPLACE_DISK_AUTO,
        remote_node: str | None = None,
        iallocator: str | None = None,
        reason: str | None = None,
        early_release: bool | None = None,
    ) -> int:
        """Replace the storage of mirrored disks."""
        return int(
            self._post(
                self._path("instances", instance, "replace-disks"),
                _options(reason),
                {
                    "mode": mode,
                    **_given(
                        disks=disks,
                        remote_node=remote_node,
                        iallocator=iallocator,
                        early_release=early_release,
                    ),
                },
            )
        )

    def PrepareExport(self, instance: str, mode: str, reason: str | None = None) -> int:
        """Prepare an export to another cluster."""
        return int(
            self._put(
                self._path("instances", instance, "prepare-export"), _options(reason, mode=mode)
            )
        )

    def ExportInstance(
        self,
        instance: str,
        mode: str,
        destination: Any,
        shutdown: bool | None = None,
        remove_instance: bool | None = None,
        x509_key_name: Any = None,
        destination_x509_ca: str | None = None,
        compress: str | None = None,
        reason: str | None = None,
    ) -> int:
        """Export an instance to a node or another cluster."""
        return int(
            self._put(
                self._path("instances", instance, "export"),
                _options(reason),
                {
                    "destination": destination,
                    "mode": mode,
                    **_given(
                        shutdown=shutdown,
                        remove_instance=remove_instance,
                        x509_key_name=x509_key_name,
                        destination_x509_ca=destination_x509_ca,
                        compress=compress,
                    ),
                },
            )
        )

    def MigrateInstance(
        self,
        instance: str,
        mode: str | None = None,
        cleanup: bool | None = None,
        target_node: str | None = None,
        reason: str | None = None,
    ) -> int:
        """Migrate an instance to another node."""
        return int(
            self._put(
                self._path("instances", instance, "migrate"),
                _options(reason),
                _given(mode=mode, cleanup=cleanup, target_node=target_node),
            )
        )

    def FailoverInstance(
        self,
        instance: str,
        iallocator: str | None = None,
        ignore_consistency: bool | None = None,
        target_node: str | None = None,
        reason: str | None = None,
    ) -> int:
        """Fail an instance over to another node."""
        return int(
            self._put(
                self._path("instances", instance, "failover"),
                _options(reason),
                _given(
                    iallocator=iallocator,
                    ignore_consistency=ignore_consistency,
                    target_node=target_node,
                ),
            )
        )

    def RenameInstance(
        self,
        instance: str,
        new_name: str,
        ip_check: bool | None = None,
        name_check: bool | None = None,
        reason: str | None = None,
    ) -> int:
        """Rename an instance."""
        return int(
            self._put(
                self._path("instances", instance, "rename"),
                _options(reason),
                _given(new_name=new_name, ip_check=ip_check, name_check=name_check),
            )
        )

    def GetInstanceConsole(self, instance: str, reason: str | None = None) -> dict[str, Any]:
        """Return the console of an instance."""
        return dict(self._get(self._path("instances", instance, "console"), _options(reason)))

    # -- jobs ------------------------------------------------------------------------------------

    def GetJobs(self, bulk: bool = False) -> list[Any]:
        """Return the numbers of the jobs, or whole objects."""
        found = self._list("jobs", "id", bulk, None)
        return list(found) if bulk else [int(job) for job in found]

    def GetJobStatus(self, job_id: int | str) -> dict[str, Any]:
        """A job."""
        return dict(self._get(self._path("jobs", job_id)))

    def WaitForJobCompletion(self, job_id: int | str, period: float = 5, retries: int = -1) -> bool:
        """Poll a job until it has ended.

        :param period: seconds between two requests.
        :param retries: number of requests, -1 for no limit.
        :returns: whether the job succeeded; False also when it has not ended by then.
        """
        while retries != 0:
            status = self.GetJobStatus(job_id)["status"]
            if status == JOB_STATUS_SUCCESS:
                return True
            if status in JOB_STATUS_FINALIZED:
                return False
            if period:
                time.sleep(period)
            if retries > 0:
                retries -= 1
        return False

    def WaitForJobChange(
        self,
        job_id: int | str,
        fields: Sequence[str],
        prev_job_info: Sequence[Any] | None,
        prev_log_serial: int | None,
    ) -> dict[str, Any] | None:
        """Wait some seconds for a change of a job; return None without a change."""
        found: dict[str, Any] | None = self._get(
            self._path("jobs", job_id, "wait"),
            None,
            {
                "fields": fields,
                "previous_job_info": prev_job_info,
                "previous_log_serial": prev_log_serial,
            },
        )
        return found

    def CancelJob(self, job_id: int | str, dry_run: bool = False) -> list[Any]:
        """Cancel a job; return whether it is cancelled, and a sentence."""
        return list(self._delete(self._path("jobs", job_id), _options(dry_run=dry_run)))

    # -- nodes -----------------------------------------------------------------------------------

    def GetNodes(self, bulk: bool = False, reason: str | None = None) -> list[Any]:
        """Return the names of the nodes, or whole objects."""
        return list(self._list("nodes", "id", bulk, reason))

    def GetNode(self, node: str, reason: str | None = None) -> dict[str, Any]:
        """A node."""
        return dict(self._get(self._path("nodes", node), _options(reason)))

    def EvacuateNode(
        self,
        node: str,
        iallocator: str | None = None,
        remote_node: str | None = None,
        dry_run: bool = False,
        early_release: bool | None = None,
        mode: str | None = None,
        accept_old: bool = False,
        reason: str | None = None,
    ) -> int:
        """Move the instances of a node to other nodes; the result of the job names their jobs.

        :param accept_old: also use an old server with another answer.
        :raises GanetiApiError: both `iallocator` and `remote_node` are given.
        """
        if iallocator and remote_node:
            raise GanetiApiError("give either an allocator or a node to move to")
        if not accept_old and NODE_EVAC_RES1 not in self.GetFeatures():
            raise GanetiApiError("the server is too old for this way to evacuate nodes")
        return int(
            self._post(
                self._path("nodes", node, "evacuate"),
                _options(reason, dry_run=dry_run),
                _given(
                    iallocator=iallocator,
                    remote_node=remote_node,
                    early_release=early_release,
                    mode=mode,
                ),
            )
        )

    def MigrateNode(
        self,
        node: str,
        mode: str | None = None,
        dry_run: bool = False,
        iallocator: str | None = None,
        target_node: str | None = None,
        reason: str | None = None,
    ) -> int:
        """Migrate all instances which run on a node."""
        path = self._path("nodes", node, "migrate")
        if NODE_MIGRATE_REQV1 in self.GetFeatures():
            return int(
                self._post(
                    path,
                    _options(reason, dry_run=dry_run),
                    _given(mode=mode, iallocator=iallocator, target_node=target_node),
                )
            )
        if target_node is not None:
            raise GanetiApiError("the server is too old for a target of the migration")
        return int(self._post(path, _options(reason, dry_run=dry_run, mode=mode)))

    def GetNodeRole(self, node: str, reason: str | None = None) -> str:
        """Return the role of a node."""
        return str(self._get(self._path("nodes", node, "role"), _options(reason)))

    def SetNodeRole(
        self,
        node: str,
        role: str,
        force: bool = False,
        auto_promote: bool | None = None,
        reason: str | None = None,
    ) -> int:
        """Change the role of a node."""
        return int(
            self._put(
                self._path("nodes", node, "role"),
                _options(reason, force=force, auto_promote=auto_promote),
                role,
            )
        )

    def PowercycleNode(self, node: str, force: bool = False, reason: str | None = None) -> int:
        """Power-cycle a node."""
        return int(
            self._post(self._path("nodes", node, "powercycle"), _options(reason, force=force))
        )

    def ModifyNode(self, node: str, reason: str | None = None, **kwargs: Any) -> int:
        """Change the parameters of a node."""
        return int(self._post(self._path("nodes", node, "modify"), _options(reason), kwargs))

    def GetNodeStorageUnits(
        self, node: str, storage_type: str, output_fields: str, reason: str | None = None
    ) -> int:
        """List the storage units of a node, in the result of the job.

        :param output_fields: separated by commas.
        """
        return int(
            self._get(
                self._path("nodes", node, "storage"),
                _options(reason, storage_type=storage_type, output_fields=output_fields),
            )
        )

    def ModifyNodeStorageUnits(
        self,
        node: str,
        storage_type: str,
        name: str,
        allocatable: bool | None = None,
        reason: str | None = None,
    ) -> int:
        """Change a storage unit."""
        return int(
            self._put(
                self._path("nodes", node, "storage", "modify"),
                _options(reason, storage_type=storage_type, name=name, allocatable=allocatable),
            )
        )

    def RepairNodeStorageUnits(
        self, node: str, storage_type: str, name: str, reason: str | None = None
    ) -> int:
        """Repair a storage unit."""
        return int(
            self._put(
                self._path("nodes", node, "storage", "repair"),
                _options(reason, storage_type=storage_type, name=name),
            )
        )

    # -- networks --------------------------------------------------------------------------------

    def GetNetworks(self, bulk: bool = False, reason: str | None = None) -> list[Any]:
        """Return the names of the networks, or whole objects."""
        return list(self._list("networks", "name", bulk, reason))

    def GetNetwork(self, network: str, reason: str | None = None) -> dict[str, Any]:
        """Return the description of a network."""
        return dict(self._get(self._path("networks", network), _options(reason)))

    def CreateNetwork(
        self,
        network_name: str,
        network: str,
        gateway: str | None = None,
        network6: str | None = None,
        gateway6: str | None = None,
        mac_prefix: str | None = None,
        add_reserved_ips: Sequence[str] | None = None,
        tags: Sequence[str] | str | None = None,
        dry_run: bool = False,
        reason: str | None = None,
    ) -> int:
        """Create a network.

        :param tags: a list, or a text with commas.
        """
        if isinstance(tags, str):
            tags = [tag for tag in tags.split(",") if tag]
        return int(
            self._post(
                self._path("networks"),
                _options(reason, dry_run=dry_run),
                {
                    "network_name": network_name,
                    "network": network,
                    **_given(
                        gateway=gateway,
                        network6=network6,
                        gateway6=gateway6,
                        mac_prefix=mac_prefix,
                        add_reserved_ips=add_reserved_ips,
                        tags=tags,
                    ),
                },
            )
        )

    def ConnectNetwork(
        self,
        network_name: str,
        group_name: str,
        mode: str,
        link: str,
        vlan: str = "",
        dry_run: bool = False,
        reason: str | None = None,
    ) -> int:
        """Connect a network to a node group."""
        return int(
            self._put(
                self._path("networks", network_name, "connect"),
                _options(reason, dry_run=dry_run),
                {
                    "group_name": group_name,
                    "network_mode": mode,
                    "network_link": link,
                    "network_vlan": vlan,
                },
            )
        )

    def DisconnectNetwork(
        self, network_name: str, group_name: str, dry_run: bool = False, reason: str | None = None
    ) -> int:
        """Disconnect a network from a node group."""
        return int(
            self._put(
                self._path("networks", network_name, "disconnect"),
                _options(reason, dry_run=dry_run),
                {"group_name": group_name},
            )
        )

    def ModifyNetwork(self, network: str, reason: str | None = None, **kwargs: Any) -> int:
        """Change the parameters of a network."""
        return int(self._put(self._path("networks", network, "modify"), _options(reason), kwargs))

    def DeleteNetwork(self, network: str, dry_run: bool = False, reason: str | None = None) -> int:
        """Remove a network."""
        return int(self._delete(self._path("networks", network), _options(reason, dry_run=dry_run)))

    def RenameNetwork(self, network: str, new_name: str, reason: str | None = None) -> int:
        """Rename a network."""
        return int(
            self._put(
                self._path("networks", network, "rename"), _options(reason), {"new_name": new_name}
            )
        )

    # -- node groups -----------------------------------------------------------------------------

    def GetGroups(self, bulk: bool = False, reason: str | None = None) -> list[Any]:
        """Return the names of the node groups, or whole objects."""
        return list(self._list("groups", "name", bulk, reason))

    def GetGroup(self, group: str, reason: str | None = None) -> dict[str, Any]:
        """Return the description of a node group."""
        return dict(self._get(self._path("groups", group), _options(reason)))

    def CreateGroup(
        self,
        name: str,
        alloc_policy: str | None = None,
        dry_run: bool = False,
        reason: str | None = None,
    ) -> int:
        """Create a node group."""
        return int(
            self._post(
                self._path("groups"),
                _options(reason, dry_run=dry_run),
                _given(name=name, alloc_policy=alloc_policy),
            )
        )

    def ModifyGroup(self, group: str, reason: str | None = None, **kwargs: Any) -> int:
        """Change the parameters of a node group."""
        return int(self._put(self._path("groups", group, "modify"), _options(reason), kwargs))

    def DeleteGroup(self, group: str, dry_run: bool = False, reason: str | None = None) -> int:
        """Remove an empty node group."""
        return int(self._delete(self._path("groups", group), _options(reason, dry_run=dry_run)))

    def RenameGroup(self, group: str, new_name: str, reason: str | None = None) -> int:
        """Rename a node group."""
        return int(
            self._put(
                self._path("groups", group, "rename"), _options(reason), {"new_name": new_name}
            )
        )

    def AssignGroupNodes(
        self,
        group: str,
        nodes: Sequence[str],
        force: bool = False,
        dry_run: bool = False,
        reason: str | None = None,
    ) -> int:
        """Move nodes into a group."""
        return int(
            self._put(
                self._path("groups", group, "assign-nodes"),
                _options(reason, dry_run=dry_run, force=force),
                {"nodes": nodes},
            )
        )

    # -- tags ------------------------------------------------------------------------------------

    def _change_tags(
        self, method: str, path: str, tags: Iterable[str], dry_run: bool, reason: str | None
    ) -> int:
        query = [("tag", tag) for tag in tags] + _options(reason, dry_run=dry_run)
        return int(self._SendRequest(method, path, query, None))

    def GetClusterTags(self, reason: str | None = None) -> list[str]:
        """Return the tags of the cluster."""
        return list(self._get(self._path("tags"), _options(reason)))

    def AddClusterTags(
        self, tags: Iterable[str], dry_run: bool = False, reason: str | None = None
    ) -> int:
        """Add tags to the cluster."""
        return self._change_tags(HTTP_PUT, self._path("tags"), tags, dry_run, reason)

    def DeleteClusterTags(
        self, tags: Iterable[str], dry_run: bool = False, reason: str | None = None
    ) -> int:
        """Remove tags from the cluster."""
        return self._change_tags(HTTP_DELETE, self._path("tags"), tags, dry_run, reason)

    def GetInstanceTags(self, instance: str, reason: str | None = None) -> list[str]:
        """Return the tags of an instance."""
        return list(self._get(self._path("instances", instance, "tags"), _options(reason)))

    def AddInstanceTags(
        self, instance: str, tags: Iterable[str], dry_run: bool = False, reason: str | None = None
    ) -> int:
        """Add tags to an instance."""
        return self._change_tags(
            HTTP_PUT, self._path("instances", instance, "tags"), tags, dry_run, reason
        )

    def DeleteInstanceTags(
        self, instance: str, tags: Iterable[str], dry_run: bool = False, reason: str | None = None
    ) -> int:
        """Remove tags from an instance."""
        return self._change_tags(
            HTTP_DELETE, self._path("instances", instance, "tags"), tags, dry_run, reason
        )

    def GetNodeTags(self, node: str, reason: str | None = None) -> list[str]:
        """Return the tags of a node."""
        return list(self._get(self._path("nodes", node, "tags"), _options(reason)))

    def AddNodeTags(
        self, node: str, tags: Iterable[str], dry_run: bool = False, reason: str | None = None
    ) -> int:
        """Add tags to a node."""
        return self._change_tags(HTTP_PUT, self._path("nodes", node, "tags"), tags, dry_run, reason)

    def DeleteNodeTags(
        self, node: str, tags: Iterable[str], dry_run: bool = False, reason: str | None = None
    ) -> int:
        """Remove tags from a node."""
        return self._change_tags(
            HTTP_DELETE, self._path("nodes", node, "tags"), tags, dry_run, reason
        )

    def GetNetworkTags(self, network: str, reason: str | None = None) -> list[str]:
        """Return the tags of a network."""
        return list(self._get(self._path("networks", network, "tags"), _options(reason)))

    def AddNetworkTags(
        self, network: str, tags: Iterable[str], dry_run: bool = False, reason: str | None = None
    ) -> int:
        """Add tags to a network."""
        return self._change_tags(
            HTTP_PUT, self._path("networks", network, "tags"), tags, dry_run, reason
        )

    def DeleteNetworkTags(
        self, network: str, tags: Iterable[str], dry_run: bool = False, reason: str | None = None
    ) -> int:
        """Remove tags from a network."""
        return self._change_tags(
            HTTP_DELETE, self._path("networks", network, "tags"), tags, dry_run, reason
        )

    def GetGroupTags(self, group: str, reason: str | None = None) -> list[str]:
        """Return the tags of a node group."""
        return list(self._get(self._path("groups", group, "tags"), _options(reason)))

    def AddGroupTags(
        self, group: str, tags: Iterable[str], dry_run: bool = False, reason: str | None = None
    ) -> int:
        """Add tags to a node group."""
        return self._change_tags(
            HTTP_PUT, self._path("groups", group, "tags"), tags, dry_run, reason
        )

    def DeleteGroupTags(
        self, group: str, tags: Iterable[str], dry_run: bool = False, reason: str | None = None
    ) -> int:
        """Remove tags from a node group."""
        return self._change_tags(
            HTTP_DELETE, self._path("groups", group, "tags"), tags, dry_run, reason
        )

    # -- queries and filter rules ----------------------------------------------------------------

    def Query(
        self,
        what: str,
        fields: Sequence[str],
        qfilter: Sequence[Any] | None = None,
        reason: str | None = None,
    ) -> dict[str, Any]:
        """Query objects selected by a filter; return ``fields`` and ``data``."""
        body: dict[str, Any] = {"fields": fields}
        if qfilter is not None:
            body["qfilter"] = qfilter
        return dict(self._put(self._path("query", what), _options(reason), body))

    def QueryFields(
        self, what: str, fields: Sequence[str] | None = None, reason: str | None = None
    ) -> dict[str, Any]:
        """Return the fields of a kind of object."""
        wanted = ",".join(fields) if fields is not None else None
        return dict(self._get(self._path("query", what, "fields"), _options(reason, fields=wanted)))

    def GetFilters(self, bulk: bool = False) -> list[Any]:
        """Return the UUIDs of the filter rules, or whole rules."""
        return list(self._list("filters", "uuid", bulk, None))

    def GetFilter(self, filter_uuid: str) -> dict[str, Any]:
        """Return the description of a filter rule."""
        return dict(self._get(self._path("filters", filter_uuid)))

    def AddFilter(
        self,
        priority: int,
        predicates: Sequence[Any],
        action: Any,
        reason_trail: Sequence[Any] | None = None,
    ) -> str:
        """Add a filter rule; return its UUID."""
        return str(
            self._post(
                self._path("filters"),
                None,
                {
                    "priority": priority,
                    "predicates": predicates,
                    "action": action,
                    "reason": reason_trail or [],
                },
            )
        )

    def ReplaceFilter(
        self,
        uuid: str,
        priority: int,
        predicates: Sequence[Any],
        action: Any,
        reason_trail: Sequence[Any] | None = None,
    ) -> str:
        """Replace a filter rule, or add one with this UUID."""
        return str(
            self._put(
                self._path("filters", uuid),
                None,
                {
                    "priority": priority,
                    "predicates": predicates,
                    "action": action,
                    "reason": reason_trail or [],
                },
            )
        )

    def DeleteFilter(self, uuid: str) -> None:
        """Remove a filter rule."""
        self._delete(self._path("filters", uuid))
