"""Calls every method of a REST client against a cluster; run as a program of its own.

::

    rapi_client_drive.py DIRECTORY HOST USER PASSWORD

The directory has the package ``ganeti`` with the client: ours, or that of a Debian package. Nothing
else of the directory is used. Prints a line of JSON for each call: name, outcome, details. The
cluster must have nodes node1 to node3 in example.com, and no instances.
"""

import json
import sys

sys.path.insert(0, sys.argv[1])

from ganeti.rapi import client  # noqa: E402 - after the path is known

HOST, USER, PASSWORD = sys.argv[2:5]
ONE, TWO, THREE = "one.example.com", "two.example.com", "three.example.com"
COPY = "copy.example.com"
NODE1, NODE2, NODE3 = (f"node{number}.example.com" for number in (1, 2, 3))

cluster = client.GanetiRapiClient(
    HOST, username=USER, password=PASSWORD, curl_config_fn=client.GenericCurlConfig(timeout=120)
)
called = set()


def say(name, outcome, details):
    print(json.dumps([name, outcome, details]), flush=True)


def ask(name, *args, **kwargs):
    """Call a method which answers at once."""
    called.add(name)
    try:
        found = getattr(cluster, name)(*args, **kwargs)
    except client.GanetiApiError as err:
        say(name, "refused", str(err))
        return None
    say(name, "ok", found)
    return found


def job(name, *args, **kwargs):
    """Call a method which submits a job, and wait for it."""
    called.add(name)
    try:
        number = getattr(cluster, name)(*args, **kwargs)
    except client.GanetiApiError as err:
        say(name, "refused", str(err))
        return
    if cluster.WaitForJobCompletion(number, period=0.05):
        say(name, "success", number)
    else:
        found = cluster.GetJobStatus(number)
        say(name, found["status"], found["opresult"])


for one in (
    "GetVersion",
    "GetFeatures",
    "GetOperatingSystems",
    "GetInfo",
    "GetClusterTags",
):
    ask(one)
job("RedistributeConfig", reason="a test")
job("ModifyCluster", maintain_node_health=False)
job("AddClusterTags", ["a", "b"])
job("DeleteClusterTags", ["b"], dry_run=False)

job(
    "CreateInstance",
    "create",
    ONE,
    "diskless",
    [],
    [],
    os="noop",
    pnode=NODE2,
    ip_check=False,
    name_check=False,
    no_install=True,
    beparams={"memory": 128},
)
job(
    "CreateInstance",
    "create",
    TWO,
    "file",
    [{"size": 16}],
    [],
    os="noop",
    pnode=NODE2,
    no_install=True,
    start=False,
    name_check=False,
    ip_check=False,
)
job(
    "InstancesMultiAlloc",
    [
        cluster.InstanceAllocation(
            "create",
            THREE,
            "diskless",
            [],
            [],
            os="noop",
            no_install=True,
            start=False,
            pnode=NODE1,
            name_check=False,
            ip_check=False,
        )
    ],
)
called.add("InstanceAllocation")
ask("GetInstances")
ask("GetInstances", bulk=True)
ask("GetInstance", ONE)
job("GetInstanceInfo", ONE, static=True)
job("ModifyInstance", ONE, beparams={"vcpus": 2})
job("StartupInstance", ONE)
ask("GetInstanceConsole", ONE)
job("RebootInstance", ONE, reboot_type="hard", ignore_secondaries=False)
job("ShutdownInstance", ONE, timeout=1)
job("StartupInstance", ONE)
job("MigrateInstance", ONE, mode="live", target_node=NODE3)
job("FailoverInstance", ONE, target_node=NODE2)
job("ActivateInstanceDisks", TWO, ignore_size=True)
job("DeactivateInstanceDisks", TWO)
job("GrowInstanceDisk", TWO, 0, 8, wait_for_sync=False)
if hasattr(cluster, "SnapshotInstance"):  # an addition of ours
    job("SnapshotInstance", TWO, snapshot_name="before", disks=[0])
    assert [one["snapshot"] for one in ask("GetInstanceSnapshots", TWO)["snapshots"]] == ["before"]
    job("RestoreInstanceSnapshot", TWO, "before", dry_run=True)
    job("RestoreInstanceSnapshot", TWO, "before")
    job("CopyInstance", TWO, COPY, snapshot_name="before", pnode=NODE3, dry_run=True)
    job("CopyInstance", TWO, COPY, snapshot_name="before", pnode=NODE3)
    job("DeleteInstance", COPY)
    job("DeleteInstanceSnapshot", TWO, "before")
job("RecreateInstanceDisks", TWO, disks=[0])
job("ReplaceInstanceDisks", TWO, disks=[0])
job("ReinstallInstance", TWO, os="noop", no_startup=True)
job("PrepareExport", TWO, "local")
job("ExportInstance", TWO, "local", NODE1)
job("RenameInstance", THREE, "four.example.com", ip_check=False, name_check=False)
job("AddInstanceTags", ONE, ["x", "y+z"])
ask("GetInstanceTags", ONE)
job("DeleteInstanceTags", ONE, ["x"])

ask("GetJobs")
ask("GetJobs", bulk=True)
ask("GetJobStatus", 1)
ask("WaitForJobChange", 1, ["status"], None, None)
called.add("WaitForJobCompletion")
ask("CancelJob", 1)

if hasattr(cluster, "SubmitJob"):  # what commands outside of the cluster use
    verify = {"OP_ID": "OP_CLUSTER_VERIFY_CONFIG"}
    job("SubmitJob", [verify], reason="a test")
    ask("SubmitManyJobs", [[verify], [verify]])
    ask("RunQuery", {"OP_ID": "OP_INSTANCE_QUERY_DATA", "instances": [ONE], "static": True})
    ask("SetJobPriority", 1, 5)
    ask("ArchiveJob", 1)
    ask("ArchiveOldJobs", 86400)
    ask("GetConfigValues", ["cluster_name", "drain_flag"])
    ask("DrainQueue")
    ask("UndrainQueue")
    ask("PauseWatcher", 2_000_000_000.0)
    ask("GetWatcherPause")
    ask("EndWatcherPause")
    ask("GetGuestsUsage")
    ask("GetInstanceConsoleLog", ONE, lines=5)

if hasattr(cluster, "GetQuota"):
    ask("GetQuota")
if hasattr(cluster, "GetSession"):
    ask("GetSession")
    ask("GetSessions")
    called.add("EndSession")
    try:
        cluster.EndSession("nosuch")
    except client.GanetiApiError as error:
        say("EndSession", "ok", str(error))

if hasattr(cluster, "GetHistory"):
    ask("ExplainJob", 1)
    ask("ExplainJobs", [1, 2])
    ask("GetQueue", limit=10)
    ask("GetEvents", after="oldest", kind=["job", "log"])
    ask("GetAudit", limit=2, event="ended")
    ask("AddWebhook", "w", "https://receiver.invalid/", kind=["job"], severity="error")
    ask("GetWebhooks")
    ask("TestWebhook", "w")
    ask("RemoveWebhook", "w")
    serial = ask("GetHistory", limit=2)["commits"][0]["serial"]
    ask("GetInfoAt", serial)
    for kind, name in (("Instance", ONE), ("Node", NODE1), ("Group", "default")):
        ask(f"Get{kind}sAt", serial, bulk=True)
        ask(f"Get{kind}At", serial, name)

ask("GetNodes")
ask("GetNodes", bulk=True)
ask("GetNode", NODE2)
job("EvacuateNode", NODE2, remote_node=NODE3, mode="primary-only", dry_run=True)
job("MigrateNode", NODE2, mode="live", target_node=NODE3, dry_run=True)
if hasattr(cluster, "GetNodeMaintenance"):
    ask("GetNodeMaintenance", NODE2)
    job("StartNodeMaintenance", NODE2, remote_node=NODE3, dry_run=True)
    job("EndNodeMaintenance", NODE2, move_back=False, dry_run=True)
ask("GetNodeRole", NODE2)
job("SetNodeRole", NODE3, "regular", force=True)
job("SetNodeRole", NODE3, "master-candidate")
job("PowercycleNode", NODE3, force=True)
job("ModifyNode", NODE3, vm_capable=True)
job("GetNodeStorageUnits", NODE3, "file", "name,free")
job("ModifyNodeStorageUnits", NODE3, "lvm-pv", "x", allocatable=True)
job("RepairNodeStorageUnits", NODE3, "lvm-vg", "x")
job("AddNodeTags", NODE2, ["n"])
ask("GetNodeTags", NODE2)
job("DeleteNodeTags", NODE2, ["n"])

job("CreateGroup", "g2", alloc_policy="preferred")
ask("GetGroups")
ask("GetGroups", bulk=True)
ask("GetGroup", "g2")
job("ModifyGroup", "g2", alloc_policy="last_resort")
job("AssignGroupNodes", "g2", [NODE3], dry_run=True)
job("RenameGroup", "g2", "g3")
job("AddGroupTags", "g3", ["t"])
ask("GetGroupTags", "g3")
job("DeleteGroupTags", "g3", ["t"])
job("DeleteGroup", "g3")

job("CreateNetwork", "net1", "192.0.2.0/24", gateway="192.0.2.1", tags="q,r")
ask("GetNetworks")
ask("GetNetworks", bulk=True)
ask("GetNetwork", "net1")
if hasattr(cluster, "GetHistory"):
    serial = ask("GetHistory", limit=1)["commits"][0]["serial"]
    ask("GetNetworksAt", serial)
    ask("GetNetworkAt", serial, "net1")
job("ConnectNetwork", "net1", "default", "bridged", "br0")
job("DisconnectNetwork", "net1", "default")
job("ModifyNetwork", "net1", mac_prefix="aa:bb:cc")
job("AddNetworkTags", "net1", ["t"])
ask("GetNetworkTags", "net1")
job("DeleteNetworkTags", "net1", ["t"])
if hasattr(cluster, "RenameNetwork"):
    job("RenameNetwork", "net1", "net2")
    job("RenameNetwork", "net2", "net1")
job("DeleteNetwork", "net1")

if hasattr(cluster, "GetCapacity"):
    ask("GetCapacity", max_length=2)
    ask("GetBalance", max_length=1)
    ask("WhatIf", ["fail-node=" + NODE2])
    ask("ExplainPlacement", 128, 1, [], disk_template="diskless")
if hasattr(cluster, "CreateToken"):
    token = ask("CreateToken", label="drive", rights="read")
    ask("GetTokens")
    ask("RemoveToken", token["id"])
    ask("GetCertificates")
    called.add("RemoveCertificate")
    try:
        cluster.RemoveCertificate("nosuch")
    except client.GanetiApiError as err:
        say("RemoveCertificate", "ok" if err.code == 404 else "refused", str(err))
if hasattr(cluster, "GetPage"):
    ask("GetPage", "instances", 'name =* "*"', sort="-name", limit=1, fields=["name", "status"])
    ask("QueryPage", "node", ["name"], sort="name", limit=1)
    called.add("GetAll")
    say("GetAll", "ok", list(cluster.GetAll("instances", page_size=1)))
ask("Query", "instance", ["name", "status"])
ask("Query", "instance", ["name"], ["=", "name", ONE])
ask("QueryFields", "node", ["name"])
uuid = ask("AddFilter", 5, [["jobid", ["<", "id", 1]]], "CONTINUE")
ask("GetFilters")
ask("GetFilters", bulk=True)
ask("GetFilter", uuid)
ask("ReplaceFilter", uuid, 6, [], "CONTINUE")
ask("DeleteFilter", uuid)

if hasattr(cluster, "ExecuteBatch"):
    ask(
        "ExecuteBatch",
        [
            {"method": "GET", "path": "/2/instances"},
            {"id": "a", "method": "PUT", "path": "/2/tags", "query": {"tag": ["batch"]}},
            {"method": "DELETE", "path": "/2/tags", "query": {"tag": ["batch"]}, "after": ["a"]},
        ],
    )

if hasattr(cluster, "GetFindings"):
    job("VerifyCluster", skip_checks=["nplusone_mem"])
    ask("GetFailoverStatus")
    ask("GetImages")
    ask("GetFindings", "error", object="node")
if hasattr(cluster, "Plan"):
    ask("Plan", "ShutdownInstance", ONE)

for instance in ask("GetInstances") or ():
    job("DeleteInstance", instance)

published = {
    name
    for name in dir(client.GanetiRapiClient)
    if name[0] != "_" and callable(getattr(client.GanetiRapiClient, name))
}
say("not called", "ok" if published == called else "refused", sorted(published - called))
