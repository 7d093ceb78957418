"""The pages of the monitoring daemon, and the metrics for Prometheus."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics import parser

from ganeti import errors
from ganeti.http import messages
from ganeti.http.event_server import Accepted, Incoming
from ganeti.http.messages import Refused, Response
from ganeti.mond import configuration, node_state, openmetrics, registry
from ganeti.mond.collectors import cpu_load, diskstats, drbd, logical_volumes, xen
from ganeti.mond.openmetrics import GAUGE, Family
from ganeti.mond.registry import Registry
from ganeti.mond.web import MonitoringApplication
from ganeti.platform import paths
from ganeti.server import mond

DATA = Path(__file__).resolve().parents[2] / "data/mond"
DISKS = "8 0 sda 1 2 3 4 5 6 7 8 9 10 11\n7 0 loop0" + " 0" * 11
STAT = "cpu  {0} 0 0 0 0 0 0 0 0 0\ncpu0 {0} 0 0 0 0 0 0 0 0 0\n"


class Questions:
    """What confd answers."""

    def drbd_minors(self) -> dict[int, str]:
        return {0: 'odd"\\name'}

    def instances(self) -> list[dict[str, Any]]:
        return []


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def collected(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The collectors which read something, in this order; they read recorded states."""
    found: list[str] = []

    def reader(name: str, parse: Callable[[], Any]) -> Callable[[Any], Any]:
        def collect(_questions: Any) -> Any:
            found.append(name)
            return parse()

        return collect

    def read(name: str) -> str:
        return (DATA / name).read_text(encoding="utf-8")

    for module, collect in (
        (diskstats, lambda: diskstats.parse(DISKS)),
        (drbd, lambda: drbd.parse(read("proc_drbd84_sync.txt"), Questions().drbd_minors())),
        (logical_volumes, lambda: logical_volumes.parse(read("lvs_lv.txt"), {})),
    ):
        one = module.COLLECTOR
        again = dataclasses.replace(one, collect=reader(one.name, collect))
        monkeypatch.setattr(module, "COLLECTOR", again)
    return found


@pytest.fixture
def known(clock: Clock, collected: list[str]) -> Registry:
    load = cpu_load.LoadOverTime(
        lambda: STAT.format(int(clock.now * 50)), monotonic=clock, ticks_per_s=100
    )
    made = Registry(Questions(), load, hypervisors=lambda: ["kvm"], monotonic=clock)
    made.tick()
    clock.now = 10.0
    made.tick()
    return made


def get(
    known: Registry, path: str, *, method: str = "GET", peer: str = "192.0.2.1", **options: Any
) -> Response:
    head = messages.parse_head(f"{method} {path} HTTP/1.1\r\nHost: x".encode())

    async def ask() -> Response:
        accepted = await MonitoringApplication(known, **options).begin(Incoming(head, peer))
        assert isinstance(accepted, Accepted)
        return await accepted.answer(b"")

    return asyncio.run(ask())


def data(response: Response) -> Any:
    assert isinstance(response.body, bytes)
    return json.loads(response.body)


def test_published_pages(known: Registry) -> None:
    assert data(get(known, "/")) == [1]
    assert data(get(known, "/1/")) is None
    assert data(get(known, "/1/list/collectors")) == [
        ["cpu-avg-load", "default", 0],
        ["diskstats", "storage", 0],
        ["drbd", "storage", 1],
        ["lv", "storage", 0],
    ]
    one = data(get(known, "/1/report/default/cpu-avg-load"))
    assert one["data"] == {"cpu_number": 1, "cpus": [0.5], "cpu_total": 0.5}
    assert (one["category"], one["version"], one["format_version"]) == (None, "B", 1)
    assert [report["name"] for report in data(get(known, "/1/report/all"))] == [
        "cpu-avg-load", "diskstats", "drbd", "lv",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "path",
    [
        "/2/",
        "/1/report",
        "/1/report/storage",
        "/1/report/default/drbd",
        "/1/report/storage/x",
        "/x",
    ],
)
def test_other_paths(known: Registry, path: str) -> None:
    with pytest.raises(Refused) as caught:
        get(known, path)
    assert caught.value.status == 404


def test_other_methods(known: Registry) -> None:
    with pytest.raises(Refused) as caught:
        get(known, "/1/", method="POST")
    assert caught.value.status == 405 and ("Allow", "GET") in caught.value.headers


def test_no_page_takes_a_body(known: Registry) -> None:
    head = messages.parse_head(b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 100")
    accepted = asyncio.run(MonitoringApplication(known).begin(Incoming(head, "192.0.2.1")))
    assert isinstance(accepted, Accepted) and accepted.most_body_bytes == 0


def test_only_allowed_addresses(known: Registry) -> None:
    allowed = mond.allowed([mond._network("192.0.2.0/24"), mond._network("2001:db8::1")])
    assert data(get(known, "/", allowed=allowed)) == [1]
    for peer in ("::ffff:192.0.2.9", "2001:db8::1"):
        assert data(get(known, "/", allowed=allowed, peer=peer)) == [1]
    for peer in ("198.51.100.1", "2001:db8::2", "somewhere"):
        with pytest.raises(Refused) as caught:
            get(known, "/", allowed=allowed, peer=peer)
        assert caught.value.status == 403


def test_many_readers_cost_as_much_as_one(
    known: Registry, clock: Clock, collected: list[str]
) -> None:
    for _ in range(5):
        get(known, "/1/report/all")
        get(known, "/metrics")
    assert collected == ["diskstats", "drbd", "lv"]
    clock.now += 5.0
    get(known, "/1/report/all")
    assert collected == ["diskstats", "drbd", "lv"] * 2


def test_a_collector_which_is_not_active(known: Registry) -> None:
    known.configure(configuration.parse_intervals({"drbd": {"active": False}}))
    assert "drbd" not in [row[0] for row in data(get(known, "/1/list/collectors"))]
    with pytest.raises(Refused):
        get(known, "/1/report/storage/drbd")


def test_intervals() -> None:
    found = configuration.parse_intervals(
        {"lv": {"active": True, "interval": 60_000_000}, "drbd": {"interval": 1}, "diskstats": 7}
    )
    assert (found["lv"], found["drbd"], found["diskstats"]) == (60.0, 1.0, 5.0)


@pytest.mark.parametrize("interval", ["x", None, True, -1, 10**400, float("nan"), float("inf")])
def test_an_interval_which_is_no_sensible_number_is_the_default(interval: Any) -> None:
    assert configuration.parse_intervals({"lv": {"interval": interval}})["lv"] == 5.0


def test_one_collector_never_stops_the_others(
    known: Registry, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    def fail(_questions: Any) -> Any:
        raise ZeroDivisionError

    broken = [
        dataclasses.replace(one, collect=fail) if one.name == "lv" else one
        for one in known.active()
    ]
    monkeypatch.setattr(known, "_all", tuple(broken))
    names = [report["name"] for report in data(get(known, "/1/report/all"))]
    assert names == ["cpu-avg-load", "diskstats", "drbd"]
    with pytest.raises(Refused, match="has no data"):
        get(known, "/1/report/storage/lv")
    assert "ganeti_node_drbd_status" in text_of(get(known, "/metrics"))


def test_a_reading_that_fails_does_not_end_the_readings(
    known: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise ZeroDivisionError

    monkeypatch.setitem(known._takers, "cpu-avg-load", fail)
    known.tick()
    assert known.tick_s() > 0


def text_of(response: Response) -> str:
    assert isinstance(response.body, bytes)
    return response.body.decode()


def metrics(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Parse metrics as Prometheus does; checks their form, too."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in parser.text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_metrics(known: Registry) -> None:
    answer = get(known, "/metrics")
    assert ("Content-Type", openmetrics.CONTENT_TYPE) in answer.headers
    found = metrics(text_of(answer))
    assert found["ganeti_node_cpu_load_ratio", (("cpu", "0"),)] == 0.5
    assert found["ganeti_node_disk_read_bytes_total", (("device", "sda"),)] == 3 * 512
    assert ("ganeti_node_disk_read_bytes_total", (("device", "loop0"),)) not in found
    assert found["ganeti_node_drbd_status", ()] == 4
    owner = (("instance", 'odd"\\name'), ("minor", "0"))
    assert found["ganeti_node_drbd_connected", owner] == 0
    assert found["ganeti_node_drbd_out_of_sync_bytes", owner] == 1048320 * 1024
    syncing = (("instance", ""), ("minor", "5"))
    assert found["ganeti_node_drbd_synchronised_ratio", syncing] == pytest.approx(0.685)
    assert found["ganeti_node_logical_volumes", (("group", "xenvg"),)] == 2
    assert found["ganeti_node_logical_volumes_bytes", (("group", "xenvg"),)] == 1207959552


def test_names_and_numbers() -> None:
    family = Family("ganeti_x", GAUGE, 'says "yes"\nor \\ no')
    family.add(float("inf"), a='"\n')
    family.add(float("nan"), a="n")
    family.add(None, a="missing")
    found = metrics(openmetrics.render([family, Family("ganeti_empty", GAUGE, "no samples")]))
    assert found["ganeti_x", (("a", '"\n'),)] == float("inf")
    assert len(found) == 2


#: What a master has measured: a counter, a gauge and a histogram.
MEASURED = [
    {"name": "ganeti_a", "kind": "counter", "help": "x", "labels": ["l"], "series": [[["v"], 3]]},
    {"name": "ganeti_b", "kind": "gauge", "help": "x", "labels": [], "series": [[[], 0]]},
    {
        "name": "ganeti_c_seconds", "kind": "histogram", "help": "x", "labels": ["l"],
        "series": [[["v"], [1, 0, 2], 7.5]], "bounds": [0.5, 2.0],
    },
]  # fmt: skip


class Master:
    """A client of a master daemon."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.error: Exception | None = None
        self.before: Callable[[], object] = lambda: None

    def __call__(self, _timeout_s: float) -> Master:
        return self

    def query_metrics(self) -> list[dict[str, Any]]:
        return MEASURED

    def __enter__(self) -> Master:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def query(self, what: str, fields: list[str], qfilter: Any = None) -> dict[str, Any]:
        if self.error is not None:
            raise self.error
        if fields[0] == "name" and what in ("instance", "node"):
            self.before()
        self.asked.append(what)
        rows: dict[tuple[str, str], list[list[Any]]] = {
            ("job", "status"): [["running"], ["queued"], ["running"]],
            ("instance", "admin_state"): [["up"], ["down"]],
            ("instance", "name"): [
                ["web1", "running", "running"],
                ["web2", "ERROR_down", None],
                ["web3", "ERROR_down", "io-error"],
                ["web4", "USER_down", "shutdown"],
            ],
            ("node", "role"): [["M"], ["C"], ["O"]],
            ("node", "name"): [["n1", 1024, 512, None, None], ["n2", None, None, None, None]],
            ("group", "name"): [["g1", "uuid-1"], ["g2", "uuid-2"]],
        }
        return {"data": [[[0, value] for value in row] for row in rows[what, fields[0]]]}


def test_the_master_says_how_the_cluster_is(clock: Clock, tmp_path: Path) -> None:
    master = Master()
    state = node_state.ClusterState(connect=master, is_master=lambda: True, monotonic=clock)
    with paths.override(paths.Paths(str(tmp_path))):
        status = Path(paths.current().watcher_group_complete_file("uuid-1"))
        status.parent.mkdir(parents=True)
        status.write_text("")
        os.utime(status, (5, 5))
        found = metrics(openmetrics.render(state.families()))
        rounds = "ganeti_cluster_watcher_round_timestamp_seconds"
        assert found[rounds, (("group", "g1"),)] == 5
        assert (rounds, (("group", "g2"),)) not in found
        assert found["ganeti_node_is_master", ()] == 1
        assert found["ganeti_cluster_jobs", (("status", "running"),)] == 2
        assert found["ganeti_cluster_jobs", (("status", "waiting"),)] == 0
        assert found["ganeti_cluster_instances", (("admin_state", "up"),)] == 1
        assert found["ganeti_cluster_nodes", (("role", "offline"),)] == 1
        assert found["ganeti_a_total", (("l", "v"),)] == 3
        assert found["ganeti_b", ()] == 0
        state.wait(60)
        asked = len(master.asked)
        found = metrics(openmetrics.render(state.families()))
        assert len(master.asked) == asked
        clock.now += node_state.KEEP_S
        state.families()
        # The nodes are not asked again so soon.
        assert master.asked.count("job") == 2 and master.asked.count("node") == 3
    assert found["ganeti_cluster_instance_states", (("status", "ERROR_down"),)] == 2
    halted = {labels: one for (name, labels), one in found.items() if name.endswith("_halted")}
    assert halted == {(("instance", "web3"), ("state", "io-error")): 1}
    assert found["ganeti_cluster_node_memory_free_bytes", (("node", "n1"),)] == 512 << 20
    assert ("ganeti_cluster_node_memory_free_bytes", (("node", "n2"),)) not in found


def test_histograms_are_cumulative() -> None:
    found = metrics(openmetrics.render(openmetrics.of_master(MEASURED)))
    numbers = {
        dict(labels)["le"]: value
        for (name, labels), value in found.items()
        if name == "ganeti_c_seconds_bucket"
    }
    assert numbers == {"0.5": 1, "2.0": 1, "+Inf": 3}
    assert found["ganeti_c_seconds_count", (("l", "v"),)] == 3
    assert found["ganeti_c_seconds_sum", (("l", "v"),)] == 7.5


def test_nodes_which_do_not_answer_delay_nobody(clock: Clock) -> None:
    """Their last answer counts for some minutes; then it says nothing any more."""
    master = Master()
    state = node_state.ClusterState(connect=master, is_master=lambda: True, monotonic=clock)
    state.families()
    state.wait(60)
    assert "instance_states" in openmetrics.render(state.families())
    hanging = threading.Event()
    master.before = hanging.wait
    clock.now += node_state.LIVE_S
    assert "instance_states" in openmetrics.render(state.families())
    # The thread which asks waits, and no second one is started.
    clock.now += 5 * node_state.LIVE_S
    assert "instance_states" not in openmetrics.render(state.families())
    hanging.set()
    state.wait(60)
    assert "ganeti_cluster_jobs" in openmetrics.render(state.families())


def test_many_readers_at_once_cost_as_one(clock: Clock) -> None:
    """The second reader comes while the master is being asked for the first."""
    master = Master()
    waits, go_on = threading.Event(), threading.Event()
    real = master.query_metrics

    def measured() -> list[dict[str, Any]]:
        waits.set()
        go_on.wait()
        return real()

    master.query_metrics = measured  # type: ignore[method-assign]
    state = node_state.ClusterState(connect=master, is_master=lambda: True, monotonic=clock)
    readers = [threading.Thread(target=state.families) for _ in range(4)]
    for reader in readers:
        reader.start()
    waits.wait()
    go_on.set()
    for reader in readers:
        reader.join()
    state.wait(60)
    assert master.asked.count("job") == 1


def test_a_master_which_does_not_answer(clock: Clock) -> None:
    master = Master()
    master.error = errors.NoMasterError("no daemon")
    state = node_state.ClusterState(connect=master, is_master=lambda: True, monotonic=clock)
    assert metrics(openmetrics.render(state.families())) == {
        ("ganeti_node_is_master", ()): 1.0,
        ("ganeti_cluster_master_answers", ()): 0.0,
    }


def test_other_nodes_ask_nobody(clock: Clock) -> None:
    master = Master()
    state = node_state.ClusterState(connect=master, is_master=lambda: False, monotonic=clock)
    assert metrics(openmetrics.render(state.families())) == {("ganeti_node_is_master", ()): 0.0}
    assert not master.asked


def test_every_published_collector_is_known() -> None:
    from ganeti.constants.cluster import DATA_COLLECTORS

    made = registry.collectors(
        cpu_load.LoadOverTime(lambda: STAT.format(1)),
        xen.XenLoad(registry.no_guests),
        registry.no_guests,
    )
    assert [one.name for one in made] == sorted(DATA_COLLECTORS)


class XenLab:
    """Domains of Xen, and what confd knows about the instances of this node."""

    def __init__(self) -> None:
        self.domains: list[xen.XenGuest] = []
        self.error: Exception | None = None

    def guests(self, with_uptime: bool) -> list[xen.XenGuest]:
        if self.error is not None:
            raise self.error
        return [one if with_uptime else one._replace(uptime=None) for one in self.domains]

    def drbd_minors(self) -> dict[int, str]:
        return {}

    def instances(self) -> list[dict[str, Any]]:
        known = (("web", "up"), ("db", "up"), ("old", "down"), ("rogue", "down"))
        made = [
            {"name": name, "uuid": f"uuid-{name}", "admin_state": state, "hypervisor": "xen-pvm"}
            for name, state in known
        ]
        return [*made, {"name": "other", "hypervisor": "kvm", "admin_state": "up"}]


@pytest.fixture
def lab(clock: Clock, tmp_path: Path) -> Iterator[tuple[XenLab, Registry]]:
    made = XenLab()
    load = cpu_load.LoadOverTime(lambda: STAT.format(1), monotonic=clock)
    with paths.override(paths.Paths(str(tmp_path))):
        yield (
            made,
            Registry(
                made, load, hypervisors=lambda: ["xen-pvm"], xen_guests=made.guests, monotonic=clock
            ),
        )


def test_the_instances_of_xen(lab: tuple[XenLab, Registry]) -> None:
    own, made = lab
    own.domains = [
        xen.XenGuest("Domain-0", "r-----", 100.0, "1:00:00"),
        xen.XenGuest("web", "-b----", 5.0, "0:10:01"),
        xen.XenGuest("db", "----c-", 5.0, "0:10:02"),
        xen.XenGuest("rogue", "------", 5.0, "0:10:03"),
    ]
    reasons = Path(paths.current().instance_reason_dir)
    reasons.mkdir(parents=True)
    (reasons / "web").write_text('[["gnt:user", "because", 17]]')
    os.utime(reasons / "web", ns=(9, 9))
    one = data(get(made, "/1/report/instance/inst-status-xen"))
    assert (one["kind"], one["category"]) == (1, "instance")
    web, db, old, rogue = one["data"]["instances"]
    assert web == {
        "name": "web", "uuid": "uuid-web", "adminState": "up", "actualState": "blocked",
        "uptime": "0:10:01", "mtime": 9, "state_reason": [["gnt:user", "because", 17]],
        "status": {"code": 0, "message": ""},
    }  # fmt: skip
    assert (db["actualState"], db["status"]["code"]) == ("crashed", 1)
    assert (old["actualState"], old["uptime"], old["status"]["code"]) == ("shutdown", None, 0)
    assert (rogue["actualState"], rogue["status"]["code"]) == ("running", 4)
    assert one["data"]["status"]["code"] == 4
    assert "rogue: it should not run" in one["data"]["status"]["message"]
    found = metrics(text_of(get(made, "/metrics")))
    assert found["ganeti_node_xen_instances", (("state", "crashed"),)] == 1


def test_the_load_of_the_guests_of_xen(lab: tuple[XenLab, Registry], clock: Clock) -> None:
    own, made = lab
    for now, web, db in ((0.0, 10.0, 50.0), (10.0, 15.0, 60.0), (20.0, 30.0, 4.0)):
        clock.now = now
        own.domains = [xen.XenGuest("web", "r", web), xen.XenGuest("db", "r", db)]
        made.tick()
    own.domains.append(xen.XenGuest("new", "r", 1.0))
    clock.now = 30.0
    own.domains[1] = xen.XenGuest("db", "r", 9.0)
    made.tick()
    one = data(get(made, "/1/report/default/xen-cpu-avg-load"))
    # db was started again after ten seconds; new is in one reading only.
    assert one["data"] == {"web": pytest.approx(20 / 30), "db": 0.5, "new": 0.0}


def test_xen_does_not_answer(lab: tuple[XenLab, Registry]) -> None:
    own, made = lab
    own.error = errors.HypervisorError("'xl list' failed")
    made.tick()
    with pytest.raises(Refused, match="'xl list' failed"):
        get(made, "/1/report/instance/inst-status-xen")
    own.error = None
    own.domains = [xen.XenGuest("Domain-0", "r-----", 1.0)]
    made.tick()
    assert "xen-cpu-avg-load" not in {one.name for one in made.active() if not one.always}


def test_the_letters_of_a_state() -> None:
    assert [xen.state_of(letters) for letters in ("r-----", "---s--", "--p---", "-----d", "")] == [
        "running", "shutdown", "paused", "dying", "running",
    ]  # fmt: skip
