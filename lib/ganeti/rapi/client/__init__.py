"""A client of the REST interface, for programs by others.

This package imports no other module of the project, so its directory can be copied to any place,
under any name; it needs Python and pycurl. Classes, methods and constants have their published
names::

    from ganeti.rapi import client

    cluster = client.GanetiRapiClient("cluster.example.com", username="jack", password="secret")
    job = cluster.StartupInstance("web1.example.com")
    if not cluster.WaitForJobCompletion(job):
        print(cluster.GetJobStatus(job)["opresult"])

Methods which change something return the number of a job, unless they say otherwise. All methods
raise :class:`GanetiApiError`, whose ``code`` is the HTTP status, and :class:`CertificateError`
when the server cannot prove who it is (:class:`PinnedKeyError` when it has another key than the
pinned one).

``GenericCurlConfig`` makes the settings of the connection, such as the file with the authority's
certificate; without them no certificate is checked, as the server's is usually its own authority.

:class:`GanetiRapiClient` has its methods from one class for each kind of object. A new method
belongs in the module of its object, such as ``instances``.
"""

from __future__ import annotations

from .cluster import Cluster
from .commands import Commands
from .constants import (
    ECODE_ALL,
    ECODE_ENVIRON,
    ECODE_EXISTS,
    ECODE_FAULT,
    ECODE_INVAL,
    ECODE_NOENT,
    ECODE_NORES,
    ECODE_NOTUNIQUE,
    ECODE_RESOLVER,
    ECODE_STATE,
    ECODE_TEMP_NORES,
    GANETI_RAPI_PORT,
    GANETI_RAPI_VERSION,
    HTTP_APP_JSON,
    HTTP_DELETE,
    HTTP_GET,
    HTTP_NOT_FOUND,
    HTTP_OK,
    HTTP_POST,
    HTTP_PUT,
    INST_CREATE_REQV1,
    INST_REINSTALL_REQV1,
    JOB_STATUS_ALL,
    JOB_STATUS_CANCELED,
    JOB_STATUS_CANCELING,
    JOB_STATUS_ERROR,
    JOB_STATUS_FINALIZED,
    JOB_STATUS_PENDING,
    JOB_STATUS_QUEUED,
    JOB_STATUS_RUNNING,
    JOB_STATUS_SUCCESS,
    JOB_STATUS_WAITING,
    JOB_STATUS_WAITLOCK,
    NODE_EVAC_ALL,
    NODE_EVAC_PRI,
    NODE_EVAC_RES1,
    NODE_EVAC_SEC,
    NODE_MIGRATE_REQV1,
    NODE_ROLE_DRAINED,
    NODE_ROLE_MASTER,
    NODE_ROLE_MASTER_CANDIDATE,
    NODE_ROLE_OFFLINE,
    NODE_ROLE_REGULAR,
    REPLACE_DISK_AUTO,
    REPLACE_DISK_CHG,
    REPLACE_DISK_PRI,
    REPLACE_DISK_SECONDARY,
)
from .credentials import Credentials
from .groups import Groups
from .identities import Identities
from .instance_disks import InstanceDisks
from .instance_states import InstanceStates
from .instances import Instances
from .jobs import Jobs
from .networks import Networks
from .nodes import Nodes
from .pages import Page, Pages
from .placement import Placement
from .plans import Plans
from .queries import Queries
from .records import Records
from .tags import Tags
from .transport import (
    CertificateError,
    CurlConfig,
    EpochNano,
    Error,
    GanetiApiError,
    GenericCurlConfig,
    KeptConnection,
    PinnedKeyError,
    Query,
    UsesRapiClient,
)
from .webhooks import Webhooks

__all__ = [
    "CertificateError",
    "CurlConfig",
    "ECODE_ALL",
    "ECODE_ENVIRON",
    "ECODE_EXISTS",
    "ECODE_FAULT",
    "ECODE_INVAL",
    "ECODE_NOENT",
    "ECODE_NORES",
    "ECODE_NOTUNIQUE",
    "ECODE_RESOLVER",
    "ECODE_STATE",
    "ECODE_TEMP_NORES",
    "EpochNano",
    "Error",
    "GANETI_RAPI_PORT",
    "GANETI_RAPI_VERSION",
    "GanetiApiError",
    "GanetiRapiClient",
    "GenericCurlConfig",
    "HTTP_APP_JSON",
    "HTTP_DELETE",
    "HTTP_GET",
    "HTTP_NOT_FOUND",
    "HTTP_OK",
    "HTTP_POST",
    "HTTP_PUT",
    "INST_CREATE_REQV1",
    "INST_REINSTALL_REQV1",
    "JOB_STATUS_ALL",
    "JOB_STATUS_CANCELED",
    "JOB_STATUS_CANCELING",
    "JOB_STATUS_ERROR",
    "JOB_STATUS_FINALIZED",
    "JOB_STATUS_PENDING",
    "JOB_STATUS_QUEUED",
    "JOB_STATUS_RUNNING",
    "JOB_STATUS_SUCCESS",
    "JOB_STATUS_WAITING",
    "JOB_STATUS_WAITLOCK",
    "KeptConnection",
    "KeptConnection",
    "NODE_EVAC_ALL",
    "NODE_EVAC_PRI",
    "NODE_EVAC_RES1",
    "NODE_EVAC_SEC",
    "NODE_MIGRATE_REQV1",
    "NODE_ROLE_DRAINED",
    "NODE_ROLE_MASTER",
    "NODE_ROLE_MASTER_CANDIDATE",
    "NODE_ROLE_OFFLINE",
    "NODE_ROLE_REGULAR",
    "Page",
    "PinnedKeyError",
    "Query",
    "REPLACE_DISK_AUTO",
    "REPLACE_DISK_CHG",
    "REPLACE_DISK_PRI",
    "REPLACE_DISK_SECONDARY",
    "UsesRapiClient",
]


class GanetiRapiClient(
    Cluster,
    Instances,
    InstanceDisks,
    InstanceStates,
    Jobs,
    Nodes,
    Networks,
    Groups,
    Tags,
    Queries,
    Pages,
    Commands,
    Credentials,
    Records,
    Placement,
    Plans,
    Webhooks,
    Identities,
):
    """The REST interface of a cluster.

    A connection is made for each request, so an object may be used by several threads.

    :param curl_config_fn: see :func:`GenericCurlConfig`.
    :param curl_factory: makes the handles of libcurl; for tests.
    :raises Error: a password is given without a user name.
    """
