"""Webhooks of a real cluster: a receiver that fails, daemons that are killed, another master."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import Cluster, made, wait_until

from fakes.web_server import Answer, WebServer, web_server
from ganeti.rapi.webhooks.message import signature

NODE1, NODE2, NODE3 = (f"node{number}.example.com" for number in (1, 2, 3))


@pytest.fixture(scope="module")
def receiver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebServer]:
    directory = tmp_path_factory.mktemp("receiver")
    with web_server(directory, lambda _request: Answer(204)) as one:
        yield one


@pytest.fixture(scope="module")
def cluster(cluster_directory: Path, receiver: WebServer) -> Iterator[Cluster]:
    """A cluster whose REST daemons may send to this machine."""
    with made(Cluster(cluster_directory, 3, "--hypervisor", "fake")) as one:
        arguments = f"--webhook-network=127.0.0.0/8 --webhook-ca={receiver.ca_file}"
        for node in (NODE1, NODE2, NODE3):
            defaults = one.path(node, "etc/default/ganeti")
            defaults.parent.mkdir(exist_ok=True)
            defaults.write_text(f'RAPI_ARGS="{arguments}"\n')
        one.run("daemon-util", "stop", "ganeti-rapi").ok()
        one.run("daemon-util", "start", "ganeti-rapi").ok()
        yield one


def messages(receiver: WebServer) -> list[dict[str, Any]]:
    return [json.loads(request.body) for request in list(receiver.requests)]


def has_tag(receiver: WebServer, tag: str) -> bool:
    """Return whether the receiver knows that the cluster has got a tag."""
    return any(
        one["type"] == "cluster" and tag in one["data"]["tags_added"]
        for one in messages(receiver)
        if "tags_added" in one["data"]
    )


def has_reset(receiver: WebServer) -> bool:
    return any(one["type"] == "reset" for one in messages(receiver))


def state(cluster: Cluster) -> dict[str, Any]:
    (found,) = json.loads(
        cluster.run("gnt-cluster", "webhook", "list", "--output=json").ok().stdout
    )
    return dict(found)


def test_webhooks_outlive_daemons_and_the_master(cluster: Cluster, receiver: WebServer) -> None:
    added = cluster.run("gnt-cluster", "webhook", "add", "all", f"{receiver.url}/hook").ok()
    secret = added.stdout.split()[-1]
    listed = cluster.run("gnt-cluster", "webhook", "list").ok().stdout
    assert receiver.url in listed and "/hook" not in listed and secret not in listed
    # The daemon has begun, and its position is on all candidates.
    wait_until(lambda: "webhook-state" in _config(cluster, NODE2), "the position is on a candidate")
    cluster.run("gnt-cluster", "add-tags", "one").ok()
    wait_until(lambda: has_tag(receiver, "one"), "an event has arrived")
    for request in list(receiver.requests):
        sent = request.headers
        assert sent["webhook-signature"] == signature(
            secret, sent["webhook-id"], int(sent["webhook-timestamp"]), request.body
        )

    # A receiver that fails, and a REST daemon which is killed meanwhile.
    receiver.respond = lambda _request: Answer(503)
    cluster.run("gnt-cluster", "add-tags", "two").ok()
    wait_until(lambda: state(cluster)["problem"], "the failure is known")
    cluster.kill_whole(NODE1, "ganeti-rapi")
    receiver.requests.clear()
    receiver.respond = lambda _request: Answer(200)
    cluster.run("daemon-util", "start", "ganeti-rapi").ok()
    wait_until(lambda: has_tag(receiver, "two"), "the event has arrived later")
    assert not has_reset(receiver)
    wait_until(lambda: not state(cluster)["problem"], "the success is known")

    # The master daemon has lost its events, and the receiver is informed of that.
    receiver.requests.clear()
    cluster.kill_whole(NODE1, "ganeti-masterd")
    cluster.run("daemon-util", "start", "ganeti-masterd").ok()
    # What happens before the reset is among what the receiver has to look at again.
    wait_until(lambda: has_reset(receiver), "the receiver is informed of the lost events")
    assert messages(receiver)[0]["type"] == "reset"
    cluster.run("gnt-cluster", "add-tags", "three").ok()
    wait_until(lambda: has_tag(receiver, "three"), "the new master daemon has events")

    # Another master goes on.
    receiver.requests.clear()
    cluster.on(NODE2, "gnt-cluster", "master-failover").ok()
    cluster.on(NODE2, "daemon-util", "start", "ganeti-rapi").ok()
    wait_until(lambda: has_reset(receiver), "the receiver is informed by the new master")
    cluster.on(NODE2, "gnt-cluster", "add-tags", "four").ok()
    wait_until(lambda: has_tag(receiver, "four"), "the new master sends")
    cluster.on(NODE2, "gnt-cluster", "webhook", "remove", "all").ok()


def _config(cluster: Cluster, node: str) -> str:
    return cluster.path(node, "var/lib/ganeti/config.data").read_text()
