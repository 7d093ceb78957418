"""Every published method, over a real socket, with a real queue."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fakes.config import FakeConfig, cluster_of
from fakes.rpc import FakeRpc
from ganeti import errors, ht
from ganeti.cmdlib.base import MasterContext
from ganeti.cmdlib.processor import Processor
from ganeti.jobstore.store import QueueStore
from ganeti.jqueue.execution import Execution
from ganeti.jqueue.queue import JobQueue
from ganeti.locking import Level, LockManager
from ganeti.luxi import client as luxi
from ganeti.luxi import methods
from ganeti.luxi import protocol as wire
from ganeti.luxi.methods import Arg, Method, Right
from ganeti.master import luxi_service
from ganeti.master.luxi_server import LuxiServer
from ganeti.master.luxi_service import LuxiService
from ganeti.opcodes.test import OpTestDelay
from ganeti.platform import paths
from ganeti.utils import net

PATIENCE_S = 60.0
DELAY = {"OP_ID": "OP_TEST_DELAY", "duration": 0.0, "on_master": False}


class Master:
    """What masterd puts together, without a daemon."""

    def __init__(self, directory: Path) -> None:
        self.config = FakeConfig(cluster_of())
        self.rpc = FakeRpc(self.config)
        data = self.config.snapshot()
        self.locks = LockManager(
            {
                Level.INSTANCE: list(data.instances),
                Level.NODE: list(data.nodes),
                Level.NODEGROUP: list(data.nodegroups),
                Level.NODE_RES: list(data.nodes),
            }
        )
        context = MasterContext(self.config, self.locks, self.rpc)  # type: ignore[arg-type]
        self.queue = context.queue = JobQueue(
            QueueStore(str(directory / "queue")),
            Execution(Processor(context).execute, locks=self.locks),
        )
        self.queue.start()
        self.path = str(directory / "socket")
        self.server = LuxiServer([net.unix_listen(self.path, 0o600)], LuxiService(context))
        self.thread = threading.Thread(target=self.server.serve)
        self.thread.start()

    def stop(self) -> None:
        self.queue.stop(PATIENCE_S)
        self.server.stop(grace_s=1.0)
        self.thread.join(PATIENCE_S)


@pytest.fixture
def master(tmp_path: Path) -> Iterator[Master]:
    with paths.override(paths.Paths(str(tmp_path))):
        made = Master(tmp_path)
        yield made
        made.stop()


@pytest.fixture
def client(master: Master) -> Iterator[luxi.Client]:
    with luxi.Client(master.path) as made:
        yield made


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def wait(client: luxi.Client, job_id: int) -> str:
    info: list[Any] | None = None
    serial: int | None = None
    while info is None or info[0] not in ("success", "error", "canceled"):
        change = client.wait_for_job_change(job_id, ["status"], info, serial)
        assert change is not None
        info, entries = change
        serial = max([entry[0] for entry in entries], default=serial)
    return str(info[0])


def test_every_method_is_served() -> None:
    service = LuxiService(MasterContext(None, None, None))  # type: ignore[arg-type]
    for method in methods.TABLE.values():
        handler = service.handler(method.name)
        assert handler is not None
        assert (handler.slow, handler.overlaps) == (method.slow, method.overlaps)
    assert service.handler("Nosuch") is None
    assert luxi_service._functions.keys() == methods.TABLE.keys()


def test_a_method_has_one_server_which_takes_its_arguments() -> None:
    def archive(self: object, request: object, job: object) -> None: ...

    with pytest.raises(errors.ProgrammerError, match="ArchiveJob has two servers"):
        luxi_service._serves(methods.ARCHIVE_JOB)(archive)
    other = Method("Other", "Takes another argument", (Arg("name", ht.Str),))
    with pytest.raises(errors.ProgrammerError, match="Other has parameters .*'job'.* not .*'name'"):
        luxi_service._serves(other)(archive)
    assert luxi_service._functions.keys() == methods.TABLE.keys()


def test_secrets_are_for_the_administrator() -> None:
    service = LuxiService(MasterContext(None, None, None))  # type: ignore[arg-type]
    for method in methods.TABLE.values():
        handler = service.handler(method.name)
        assert handler is not None
        request = SimpleNamespace(args=[1] * len(method.args), peer_uid=lambda: 65534)
        if method.right is Right.ADMINISTRATOR:
            with pytest.raises(errors.OpPrereqError, match=f"{method.name} contains secrets"):
                handler.begin(request)  # type: ignore[arg-type]
    secret = {
        method.name for method in methods.TABLE.values() if method.right is Right.ADMINISTRATOR
    }
    assert secret == {"QueryConfigAt", "QueryConfigChanges"}


def test_a_job_through_the_socket(client: luxi.Client) -> None:
    job_id = client.submit_job([OpTestDelay(duration=0.0, on_master=False)])
    assert wait(client, job_id) == "success"
    assert client.query_jobs([job_id, 999], ["id", "status", "opresult"]) == [
        [job_id, "success", [None]],
        None,
    ]
    assert client.call("QueryJobs", [str(job_id)], ["id"]) == [[job_id]]
    answer = client.query("job", ["id", "status"], ["==", "id", job_id])
    assert answer["data"] == [[[0, job_id], [0, "success"]]]
    assert client.archive_job(job_id) is True
    assert client.archive_job(job_id) is False
    assert client.query_jobs(None, ["id"]) == []
    assert client.query_jobs([job_id], ["status", "archived"]) == [["success", True]]


def test_waiting(master: Master, client: luxi.Client) -> None:
    job_id = client.submit_job([OpTestDelay(duration=0.0, on_master=False)])
    wait(client, job_id)
    assert client.wait_for_job_change(job_id, ["status"], ["success"], 5, 0) == (
        ["success"],
        [],
    ), "an ended job is reported at once"
    assert client.wait_for_job_change(job_id, ["nosuch"], None, None, 0) == ([None], [])
    with pytest.raises(errors.JobLost):
        client.wait_for_job_change(999, ["status"], None, None, 0)
    gate = threading.Event()
    free = master.queue.scheduler._own_process._execute

    def held(op: Any, callbacks: Any) -> Any:
        callbacks.notify_start()
        assert gate.wait(PATIENCE_S)

    master.queue.scheduler._own_process._execute = held
    job_id = client.submit_job([OpTestDelay(duration=0.0)])
    until(lambda: client.query_jobs([job_id], ["status"]) == [["running"]])
    assert client.wait_for_job_change(job_id, ["status"], ["running"], None, 0) is None
    assert not master.queue.publisher.subscriptions
    sock = net.unix_connect(master.path)
    sock.sendall(
        wire.encode_request("WaitForJobChange", [job_id, ["status"], ["running"], None, 60])
    )
    until(lambda: job_id in master.queue.publisher.subscriptions)
    sock.close()
    until(lambda: not master.queue.publisher.subscriptions)
    assert client.cancel_job(job_id)[0]
    gate.set()
    assert wait(client, job_id) == "success"
    master.queue.scheduler._own_process._execute = free


def test_a_job_without_opcodes_is_accepted(client: luxi.Client) -> None:
    """It has nothing to do, and has ended with success, as in Ganeti."""
    for job_id in (
        client.call("SubmitJob", []),
        client.call("SubmitJobToDrainedQueue", []),
        client.call("SubmitManyJobs", [[DELAY], []])[1][1],
    ):
        assert client.call("QueryJobs", [job_id], ["id", "status", "ops", "summary"]) == [
            [job_id, "success", [], []]
        ]
        assert wait(client, job_id) == "success"
        assert client.call("ArchiveJob", job_id) is True


def test_a_job_which_depends_on_no_job_is_accepted_and_fails(client: luxi.Client) -> None:
    job_id = client.call("SubmitJob", [{**DELAY, "depends": [[999_999, []]]}])
    assert wait(client, job_id) == "error"
    ((results,),) = client.call("QueryJobs", [job_id], ["opresult"])
    assert "depends on job 999999, which does not exist" in str(results)


def test_submissions_are_judged_each_for_itself(client: luxi.Client) -> None:
    result = client.call(
        "SubmitManyJobs",
        [
            [DELAY],
            [{**DELAY, "duration": "x"}],
            [{"OP_ID": "OP_NOSUCH"}],
            [{**DELAY, "nosuch": 1}],
            [{**DELAY, "depends": [[-1, []]]}],
            [{**DELAY, "depends": [[-5, ["success"]]]}],
            [{}],
        ],
    )
    assert [accepted for accepted, _ in result] == [True, False, False, False, False, True, False]
    assert "duration" in result[1][1]
    assert "OP_NOSUCH" in result[2][1]
    assert "nosuch" in result[3][1]
    assert wait(client, result[5][1]) == "success"
    with pytest.raises(errors.OpCodeUnknown):
        client.call("SubmitJob", [{"OP_ID": "OP_NOSUCH"}])
    with pytest.raises(errors.OpPrereqError, match="priority"):
        client.call("SubmitJob", [{**DELAY, "priority": 7}])


@pytest.mark.parametrize(
    ("method", "args", "refusal"),
    [
        ("SubmitJob", [], "takes 1 arguments"),
        ("SubmitJob", [["str"]], "'ops' must be"),
        ("SubmitJob", ["str"], "'ops' must be"),
        ("SubmitManyJobs", [[{}]], "'jobs' must be"),
        ("Query", ["instance", "name", None], "'fields' must be"),
        ("Query", ["instance"], "takes 3 arguments"),
        ("CancelJob", ["x"], "'job' must be"),
        ("CancelJob", [1, False, 3], "takes 2 arguments"),
        ("QueryTags", ["cluster", None], "'name' must be"),
        ("QueryTags", ["bogus", "x"], "'kind' must be"),
        ("WaitForJobChange", [1, ["status"], "x", None, 2], "'prev_job_info' must be"),
        ("SetDrainFlag", ["yes"], "'flag' must be"),
        ("QueryConfigHistory", [2**64], "'limit' must be"),
        ("QueryConfigChanges", [2**64, 1], "'first' must be"),
        ("QueryConfigAt", [-1], "'point' must be"),
        ("QueryConfigAt", [[1e300]], "'point' must be"),
        ("SetWatcherPause", [1e300], "'until' must be"),
        ("ReplaceFilter", [None, 2**64, [], "ACCEPT", []], "'priority' must be"),
        ("Query", ["instance", ["name"] * 1001, None], "'fields' must be .*at most 1000 items"),
        ("QueryFields", ["instance", ["name"] * 1001], "'fields' must be .*at most 1000 items"),
        ("QueryNodes", [[], ["name"] * 1001, False], "'fields' must be .*at most 1000 items"),
        ("ChangeJobPriority", [1, True], "'priority' must be"),
    ],
)
def test_wrong_arguments_are_refused_in_words(
    client: luxi.Client, method: str, args: list[Any], refusal: str
) -> None:
    with pytest.raises(errors.RequestError, match=refusal):
        client.call(method, *args)
    assert client.query_config_values(["cluster_name"]) == ["cluster.example.com"]


@pytest.mark.parametrize("text", ["a\0b", "\ud800", "\udc00\ud800"])
def test_texts_which_cannot_be_written_are_refused(client: luxi.Client, text: str) -> None:
    for op in ({**DELAY, "comment": text}, {**DELAY, "reason": [["x", text, 1]]}):
        with pytest.raises(errors.OpPrereqError, match="zero character|not valid Unicode"):
            client.call("SubmitJob", [op])
    assert client.call("SubmitJob", [{**DELAY, "comment": "größer \U0001f600"}])


def test_jobs_have_a_size_and_remarks_a_length(client: luxi.Client) -> None:
    with pytest.raises(errors.OpPrereqError, match="comment"):
        client.call("SubmitJob", [{**DELAY, "comment": "x" * ((1 << 16) + 1)}])
    large = {**DELAY, "reason": [["gnt:client", "x" * (4 << 20), 1]]}
    with pytest.raises(errors.OpPrereqError, match="a job may have 4 MiB"):
        client.call("SubmitJob", [large])
    with pytest.raises(errors.OpPrereqError, match="a job may have 4 MiB"):
        client.call("SubmitJobToDrainedQueue", [large])
    fine = {**DELAY, "comment": "x" * (1 << 16)}
    result = client.call("SubmitManyJobs", [[fine], [large], [fine] * 5])
    assert [accepted for accepted, _ in result] == [True, False, True]


def test_the_drain_flag(client: luxi.Client) -> None:
    assert client.query_config_values(["drain_flag"]) == [False]
    assert client.set_queue_drain_flag(True) is True
    assert client.query_config_values(["drain_flag"]) == [True]
    with pytest.raises(errors.JobQueueDrainError):
        client.submit_job([OpTestDelay(duration=0.0)])
    job_id = client.submit_job([OpTestDelay(duration=0.0, on_master=False)], drained_ok=True)
    assert client.set_queue_drain_flag(False) is True
    assert wait(client, job_id) == "success"


def test_what_cannot_be_done_is_said(client: luxi.Client) -> None:
    with pytest.raises(errors.GenericError, match="own use"):
        client.call("PickupJob", 1)
    with pytest.raises(errors.GenericError, match="does not exist"):
        client.delete_filter("nosuch")
    with pytest.raises(errors.OpPrereqError, match="locks"):
        client.query_instances([], ["name"], use_locking=True)
    with pytest.raises(errors.OpPrereqError, match="age"):
        client.auto_archive_jobs(-2)
    with pytest.raises(errors.OpPrereqError, match="nosuch"):
        client.query_jobs(None, ["nosuch"])
    assert client.query_filters(None, ["uuid"]) == []
    assert client.cancel_job(999) == (False, "job 999 is not in the queue")
    assert client.change_job_priority(999, 0)[0] is False
    assert client.auto_archive_jobs(-1) == (0, 0)


def test_queries(master: Master, client: luxi.Client) -> None:
    nodes = [node.name for node in master.config.nodes()]
    assert client.query_nodes([], ["name"]) == [[name] for name in nodes]
    assert client.query_nodes(nodes[:1], ["name"]) == [nodes[:1]]
    with pytest.raises(errors.OpPrereqError) as caught:
        client.query_nodes(["nosuch"], ["name"])
    assert caught.value.ecode == "unknown_entity"
    assert client.query_groups([], ["name"]) == [[group.name] for group in master.config.groups()]
    assert client.query_networks([], ["name"]) == []
    fields = client.query_fields("node", ["name", "nosuch"])["fields"]
    assert [field["kind"] for field in fields] == ["text", "unknown"]
    assert len(client.query_fields("node")["fields"]) > 20
    assert client.query("lock", ["name", "mode"])["data"] == []
    with pytest.raises(errors.OpPrereqError, match="nothing called 'bogus'"):
        client.query("bogus", ["name"])


def test_cluster_values(master: Master, client: luxi.Client) -> None:
    assert client.query_config_values(
        ["cluster_name", "master_node", "nosuch", "watcher_pause"]
    ) == ["cluster.example.com", "node1.example.com", None, None]
    assert client.query_tags("cluster") == []
    assert client.query_tags("node", "node1") == []
    with pytest.raises(errors.OpPrereqError) as caught:
        client.query_tags("instance", "nosuch")
    assert caught.value.ecode == "unknown_entity"
    assert client.set_watcher_pause(None) is None
    assert client.set_watcher_pause(5.5) == 5.5
    called = master.rpc.of("set_watcher_pause")
    assert {args["until"] for _node, args in called} == {None, 5.5}
    master.rpc.errors["set_watcher_pause", "node1.example.com"] = "no space"
    with pytest.raises(errors.GenericError, match="no space"):
        client.set_watcher_pause(None)


# The keys of QueryClusterInfo which programs read.
PUBLISHED = """architecture beparams blacklisted_os candidate_pool_size compression_tools
config_version ctime data_collector_interval default_hypervisor default_iallocator
default_iallocator_params diskparams drbd_usermode_helper enabled_data_collectors
enabled_disk_templates enabled_hypervisors enabled_user_shutdown export_version file_storage_dir
gluster_storage_dir hidden_os hvparams install_image instance_communication_network ipolicy
mac_prefix maintain_node_health master master_netdev master_netmask max_running_jobs
max_tracked_jobs modify_ssh_setup mtime name ndparams nicparams os_api_version os_hvp osparams
prealloc_wipe_disks primary_ip_version protocol_version reserved_lvs shared_file_storage_dir
software_version ssh_key_bits ssh_key_type tags uid_pool use_external_mip_script uuid vcs_version
volume_group_name zeroing_image"""


def test_cluster_info_has_the_published_keys(client: luxi.Client) -> None:
    info = client.query_cluster_info()
    # The rest is ours, and named with its reason in test_luxi_published.
    assert set(info) >= set(PUBLISHED.split())
    assert info["name"] == "cluster.example.com"
    assert info["master"] == "node1.example.com"
    assert info["primary_ip_version"] == 4
    assert info["default_hypervisor"] == info["enabled_hypervisors"][0]
    assert client.call("QueryClusterInfo", 1) == info, "more arguments do no harm here"


def test_a_pipeline_of_submissions_shares_the_commits(client: luxi.Client) -> None:
    ids = client.pipeline([("SubmitJob", [[DELAY]]) for _ in range(50)])
    assert sorted(ids) == ids
    assert [wait(client, job_id) for job_id in ids] == ["success"] * 50
