"""The sections of ``make bench`` about the REST daemon."""

from __future__ import annotations

import statistics

from devel.bench import listeners, rapi
from devel.bench import lists as instances
from devel.bench.figures import Figure, figure
from ganeti import vcluster


def requests(cluster: vcluster.VirtualCluster, quick: bool) -> list[Figure]:
    """Measure the rate of requests, a long list, and the memory for idle clients."""
    address = cluster.nodes[0].ip
    seconds, rounds = (0.3, 1) if quick else (3.0, 3)
    few, many = (3, 100) if quick else (10, 10000)
    instances.fill(cluster, few)
    found = []
    for key, path in (("info", rapi.INFO), ("bulk", rapi.BULK)):
        for clients in (1, 10):
            rate = rapi.rate(cluster, path, clients, seconds, rounds)
            title = f"GET {path}, {clients} client{'s' if clients > 1 else ''}"
            found += [
                figure(f"rest_{key}_{clients}", title, "1/s", rate.per_s, more_is_better=True),
                figure(
                    f"rest_{key}_{clients}_cpu",
                    "  processor of the REST daemon for each",
                    "ms",
                    [rate.cpu_ms],
                ),
            ]
    idle = rapi.idle(cluster, 20 if quick else 500, seconds)
    instances.fill(cluster, many)
    return [
        *found,
        figure(
            "rest_info_beside_idle",
            f"GET {rapi.INFO} beside {idle.clients} idle clients",
            "1/s",
            [idle.info_per_s],
            more_is_better=True,
        ),
        figure(
            "rest_idle_memory",
            "  memory of the daemon for each of them",
            "KiB",
            [idle.memory_kib_each],
        ),
        figure(
            "rest_list",
            f"GET {rapi.BULK}, {many} instances",
            "ms",
            rapi.list_ms(address, rapi.BULK, 2 if quick else 5),
        ),
        figure(
            "rest_names",
            f"GET /2/instances, {many} instances",
            "ms",
            rapi.list_ms(address, "/2/instances", 2 if quick else 5),
        ),
    ]


def lists(cluster: vcluster.VirtualCluster, quick: bool) -> list[Figure]:
    """Measure a list of 20,000 instances in its forms."""
    count, rounds = (100, 2) if quick else (20000, 5)
    instances.fill(cluster, count)
    page = f"{rapi.BULK}&limit=100&sort=-be/maxmem"
    address = cluster.nodes[0].ip
    user = rapi.user(cluster)
    return [
        figure(
            f"rest_list_{key}", f"GET {path}{more}", "ms",
            rapi.list_ms(address, path, rounds, *headers, known=key == "known"),
        )
        for key, path, more, headers in (
            ("plain", rapi.BULK, f", {count} instances", ()),
            ("gzip", rapi.BULK, ", gzip", ("Accept-Encoding: gzip",)),
            ("names", "/2/instances", "", ()),
            ("page", page, "", (user,)),
            ("known", "/2/instances?limit=100", ", unchanged", ()),
        )
    ]  # fmt: skip


def events(cluster: vcluster.VirtualCluster, quick: bool) -> list[Figure]:
    """Measure what 1,000 listeners cost the others."""
    number, jobs, rounds = (20, 5, 1) if quick else (1000, 60, 3)
    instances.fill(cluster, 10)
    found = []
    for key, title, path, web_socket in (
        ("idle", "streams without an event", listeners.NOTHING, False),
        ("stream", "streams of all jobs", listeners.JOBS, False),
        ("socket", "WebSockets of all jobs", listeners.JOBS, True),
    ):
        cost = listeners.cost(
            cluster, path, listeners=number, web_socket=web_socket, jobs=jobs, rounds=rounds
        )
        for what, name, samples in (
            ("job", "small job", cost.job), ("info", f"GET {rapi.INFO}", cost.info),
        ):  # fmt: skip
            with_, without = statistics.median(samples[1]), statistics.median(samples[0])
            found += [
                figure(f"events_{key}_{what}_none", f"{name}, nobody listens", "ms", samples[0]),
                figure(f"events_{key}_{what}", f"  beside {number} {title}", "ms", samples[1]),
                figure(f"events_{key}_{what}_ratio", "  compared", "times", [with_ / without],
                       budget=1.1),
            ]  # fmt: skip
        found.append(
            figure(f"events_{key}_cpu", "  processor of REST, each event and listener", "us",
                   [cost.cpu_us])
        )  # fmt: skip
    return found
