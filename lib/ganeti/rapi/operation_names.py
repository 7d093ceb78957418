"""The names of operations in the OpenAPI description, from which generators name functions.

Most names follow from path and method: ``GET /2/nodes`` is ``listNodes``, ``GET /2/nodes/{name}``
is ``getNode``, ``PUT /2/instances/{name}/startup`` is ``startupInstance``. A table has the others.
Names are part of the interface: a generated client depends on them.
"""

from __future__ import annotations

from typing import Final

from ganeti.rapi.declare import DELETE, GET, POST, PUT

_SINGULAR: Final = {
    "instances": "Instance",
    "nodes": "Node",
    "groups": "Group",
    "networks": "Network",
    "jobs": "Job",
    "filters": "Filter",
    "documents": "Document",
    "webhooks": "Webhook",
    "tokens": "Token",
    "certificates": "Certificate",
}
_COLLECTION: Final = {GET: "list", POST: "create"}
_ITEM: Final = {GET: "get", PUT: "replace", DELETE: "remove"}
_TAGS: Final = {GET: "list", PUT: "add", DELETE: "remove"}
_INSTANCE: Final = "/2/instances/{instance_name}"
_OTHERS: Final = {
    ("/", GET): "checkServer",
    ("/2", GET): "checkVersion",
    ("/version", GET): "getVersion",
    ("/2/doc", GET): "getDocumentation",
    ("/2/openapi.json", GET): "getDescription",
    ("/2/features", GET): "listFeatures",
    ("/2/batch", POST): "executeBatch",
    ("/2/login/oidc", GET): "beginLogin",
    ("/2/login/oidc/callback", GET): "finishLogin",
    ("/2/login/oidc/logout", GET): "logOutAtProvider",
    ("/2/events", GET): "watchEvents",
    ("/2/events/log", GET): "listEvents",
    ("/2/info", GET): "getCluster",
    ("/2/modify", PUT): "modifyCluster",
    ("/2/redistribute-config", PUT): "redistributeConfig",
    ("/2/os", GET): "listOperatingSystems",
    ("/2/query/{resource}", GET): "queryAll",
    ("/2/query/{resource}", PUT): "queryFiltered",
    ("/2/query/{resource}/fields", GET): "listQueryFields",
    ("/2/instances-multi-alloc", POST): "createInstances",
    ("/2/groups/{group_name}/assign-nodes", PUT): "assignNodesToGroup",
    ("/2/jobs/{job_id}", DELETE): "cancelJob",
    ("/2/jobs/{job_id}/wait", GET): "waitForJob",
    ("/2/nodes/{node_name}/role", PUT): "setNodeRole",
    ("/2/nodes/{node_name}/storage", GET): "listNodeStorage",
    ("/2/nodes/{node_name}/storage/modify", PUT): "modifyNodeStorage",
    ("/2/nodes/{node_name}/storage/repair", PUT): "repairNodeStorage",
    (f"{_INSTANCE}/activate-disks", PUT): "activateInstanceDisks",
    (f"{_INSTANCE}/deactivate-disks", PUT): "deactivateInstanceDisks",
    (f"{_INSTANCE}/disk/{{disk_index}}/grow", POST): "growInstanceDisk",
    (f"{_INSTANCE}/recreate-disks", POST): "recreateInstanceDisks",
    (f"{_INSTANCE}/replace-disks", POST): "replaceInstanceDisks",
    (f"{_INSTANCE}/prepare-export", PUT): "prepareInstanceExport",
    (f"{_INSTANCE}/export", DELETE): "removeInstanceExports",
    (f"{_INSTANCE}/info", GET): "describeInstance",
    (f"{_INSTANCE}/copy", POST): "copyInstance",
    (f"{_INSTANCE}/snapshots", GET): "listInstanceSnapshots",
    (f"{_INSTANCE}/snapshots", POST): "createInstanceSnapshot",
    (f"{_INSTANCE}/snapshots/{{snapshot_name}}", DELETE): "removeInstanceSnapshot",
    (f"{_INSTANCE}/snapshots/{{snapshot_name}}/restore", POST): "restoreInstanceSnapshot",
    ("/2/jobs", POST): "submitJobs",
    ("/2/jobs/archive", POST): "archiveOldJobs",
    ("/2/jobs/{job_id}/priority", PUT): "setJobPriority",
    ("/2/run-query", PUT): "runQuery",
    ("/2/config-values", GET): "getConfigValues",
    ("/2/queue/drain", PUT): "drainQueue",
    ("/2/queue/drain", DELETE): "undrainQueue",
    ("/2/watcher/pause", GET): "getWatcherPause",
    ("/2/watcher/pause", PUT): "pauseWatcher",
    ("/2/watcher/pause", DELETE): "endWatcherPause",
    ("/2/guests/usage", GET): "getGuestsUsage",
    ("/2/jobs/{job_id}/explain", GET): "explainJob",
    ("/2/jobs/explain", GET): "explainJobs",
    ("/2/queue", GET): "getQueue",
    ("/2/images", GET): "listImages",
    ("/2/failover-status", GET): "getFailoverStatus",
    ("/2/verify", GET): "getFindings",
    ("/2/verify", POST): "verifyCluster",
    ("/2/history", GET): "listHistory",
    ("/2/audit", GET): "listAuditEntries",
    ("/2/at/{serial}/info", GET): "getClusterAt",
    ("/2/at/{serial}/instances", GET): "listInstancesAt",
    ("/2/at/{serial}/instances/{instance_name}", GET): "getInstanceAt",
    ("/2/at/{serial}/nodes", GET): "listNodesAt",
    ("/2/at/{serial}/nodes/{node_name}", GET): "getNodeAt",
    ("/2/at/{serial}/groups", GET): "listGroupsAt",
    ("/2/at/{serial}/groups/{group_name}", GET): "getGroupAt",
    ("/2/at/{serial}/networks", GET): "listNetworksAt",
    ("/2/at/{serial}/networks/{network_name}", GET): "getNetworkAt",
    ("/2/login", POST): "logIn",
    ("/2/logout", POST): "logOut",
    ("/2/session", GET): "getSession",
    ("/2/sessions", GET): "listSessions",
    ("/2/sessions/{session_id}", DELETE): "endSession",
    ("/2/login/passkey", POST): "logInByPasskey",
    ("/2/login/passkey/challenge", POST): "beginLoginByPasskey",
    ("/2/totp", GET): "getTotp",
    ("/2/totp", POST): "beginTotp",
    ("/2/totp", PUT): "confirmTotp",
    ("/2/passkeys", GET): "listPasskeys",
    ("/2/passkeys", POST): "addPasskey",
    ("/2/passkeys/challenge", POST): "beginPasskey",
    ("/2/passkeys/{passkey_id}", DELETE): "removePasskey",
    ("/2/capacity", GET): "computeCapacity",
    ("/2/balance", GET): "computeBalance",
    ("/2/what-if", POST): "simulateChanges",
    ("/2/place", POST): "explainPlacement",
    ("/2/quota", GET): "getQuota",
    ("/2/nodes/{node_name}/maintenance", PUT): "startNodeMaintenance",
    ("/2/nodes/{node_name}/maintenance", DELETE): "endNodeMaintenance",
}


def of(path: str, method: str) -> str:
    """Return the name of an operation.

    :param path: of the resource, with names in braces.
    """
    other = _OTHERS.get((path, method))
    if other is not None:
        return other
    words = [word for word in path.split("/")[2:] if not word.startswith("{")]
    noun = _SINGULAR.get(words[0], "Cluster")
    if words[-1] == "tags":
        return f"{_TAGS[method]}{noun}Tags"
    if len(words) == 1:
        one = "{" in path
        return f"{_ITEM[method]}{noun}" if one else f"{_COLLECTION[method]}{noun}{_plural(method)}"
    if method == GET:
        return f"get{noun}{_camel(words[-1])}"
    action = _camel(words[-1])
    return f"{action[0].lower()}{action[1:]}{noun}"


def _plural(method: str) -> str:
    return "s" if method == GET else ""


def _camel(word: str) -> str:
    return "".join(part.capitalize() for part in word.split("-"))
