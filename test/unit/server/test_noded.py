"""The node daemon itself: started as a process, called over TLS."""

import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from fakes.config import cluster_of, instance_of
from fakes.node_lab import PROJECT, NodeLab
from ganeti import errors
from ganeti.http.client import Client
from ganeti.objects import fill
from ganeti.platform.master_epoch import Epoch
from ganeti.utils import x509
from ganeti.wire import calls
from ganeti.wire.calls import FileDetails

ONE, TWO, THREE = "uuid-node1", "uuid-node2", "uuid-node3"


def wait_until(condition, what):
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, f"gave up waiting until {what}"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    lab = NodeLab(str(tmp_path_factory.mktemp("lab")), 3)
    try:
        lab.start()
        yield lab
    finally:
        lab.close()


@pytest.fixture
def own_lab(tmp_path):
    lab = NodeLab(str(tmp_path), 2)
    try:
        yield lab
    finally:
        lab.close()


def test_fan_out(lab):
    answers = lab.runner().call_many(calls.VERSION, [ONE, TWO, THREE])
    assert [answer.payload() for answer in answers.values()] == [3010000] * 3


def test_handler_error_arrives_as_text_and_cause(lab):
    failure = lab.runner().call(calls.BRIDGES_EXIST, TWO, bridges=["no-br0"]).failure
    assert isinstance(failure, errors.NodeCallFailed)
    assert failure.node == "node2.example.com"
    assert "no-br0" in failure.message
    assert isinstance(failure.cause, errors.ConfigurationError)


def test_each_node_has_its_own_files(lab):
    runner = lab.runner()
    answers = runner.call_many(
        calls.UPLOAD_FILE,
        [ONE, TWO],
        file=FileDetails("/var/lib/ganeti/hmac.key", "key", 0o440, "root", "root", 1.0, 2.0),
    )
    assert all(answer.failure is None for answer in answers.values())
    assert (
        runner.call_many(calls.WRITE_SSCONF_FILES, [ONE, TWO], values={"cluster_name": "c\n"})[
            TWO
        ].failure
        is None
    )
    for name, there in (("node1", True), ("node2", True), ("node3", False)):
        here = lab.paths(f"{name}.example.com")
        assert os.path.exists(here.hmac_key) is there
        assert os.path.exists(here.ssconf_file("cluster_name")) is there


def test_verify_over_the_wire(lab):
    nodes = [[name, address, address] for name, address in lab.addresses.items()]
    answers = lab.runner().call_many(
        calls.NODE_VERIFY,
        [ONE, TWO, THREE],
        cluster_name="c",
        all_hvparams={"fake": {}},
        checks={
            "hypervisor": ["fake"],
            "client-cert": None,
            "version": None,
            "oslist": None,
            "nodesetup": None,
            "filelist": ["/var/lib/ganeti/server.pem"],
        },
    )
    sums = {
        answer.payload()["filelist"]["/var/lib/ganeti/server.pem"] for answer in answers.values()
    }
    assert len(sums) == 1
    assert all(answer.data["client-cert"][0] is None for answer in answers.values())
    assert all(answer.data["hypervisor"] == {"fake": None} for answer in answers.values())
    # The daemons of this laboratory listen on another port than the published one.
    found = (
        lab.runner()
        .call(
            calls.NODE_VERIFY_LIGHT,
            ONE,
            cluster_name="c",
            all_hvparams={},
            checks={"node-net-test": nodes},
        )
        .payload()
    )
    assert set(found["node-net-test"]) <= set(lab.names)


def test_certificate_of_another_node_is_refused(lab):
    here = lab.paths("node2.example.com")
    client = Client(here.noded_cert_file, here.noded_client_cert_file)
    failure = lab.runner(client).call(calls.VERSION, ONE).failure
    assert isinstance(failure, errors.NodeRefused)
    assert "does not belong to a master candidate" in failure.message


def test_certificate_of_another_cluster_is_refused(lab, tmp_path):
    path = tmp_path / "foreign.pem"
    path.write_text(x509.create_self_signed())
    client = Client(lab.paths(lab.names[0]).noded_cert_file, str(path))
    failure = lab.runner(client).call(calls.VERSION, ONE).failure
    assert isinstance(failure, errors.NodeRefused)
    client = Client(str(path), lab.paths(lab.names[0]).noded_client_cert_file)
    failure = lab.runner(client).call(calls.VERSION, ONE).failure
    assert isinstance(failure, errors.NodeRefused)


def test_unknown_procedure_is_refused(lab):
    failure = lab.runner().call(calls.Call("made_up"), ONE).failure
    assert isinstance(failure, errors.NodeRefused)
    assert "unknown procedure made_up" in failure.message


def test_wrong_arguments_on_the_wire(lab):
    odd = calls.Call("test_delay", (calls.Arg("a"), calls.Arg("b")))
    failure = lab.runner().call(odd, ONE, a=1, b=2).failure
    assert isinstance(failure, errors.NodeCallFailed)
    assert "takes 1 arguments, got 2" in failure.message


def test_call_that_takes_too_long(lab):
    hurried = calls.Call("test_delay", calls.TEST_DELAY.args, timeout_s=0.5)
    failure = lab.runner().call(hurried, ONE, duration_s=3).failure
    assert isinstance(failure, errors.NodeUnreachable)
    assert "no answer within 0.5 s" in failure.message


def test_daemon_that_is_down_and_up_again(own_lab):
    own_lab.start()
    runner = own_lab.runner()
    assert runner.call(calls.VERSION, TWO).payload() == 3010000
    assert own_lab.stop("node2.example.com") == 0
    answers = runner.call_many(calls.VERSION, [ONE, TWO])
    assert answers[ONE].payload() == 3010000
    assert isinstance(answers[TWO].failure, errors.NodeUnreachable)
    own_lab.start("node2.example.com")
    assert runner.call(calls.VERSION, TWO).payload() == 3010000


def test_killed_daemon_leaves_nothing_in_the_way(own_lab):
    own_lab.start()
    runner = own_lab.runner()
    done = []
    thread = threading.Thread(
        target=lambda: done.append(runner.call(calls.TEST_DELAY, ONE, duration_s=3))
    )
    assert runner.call(calls.VERSION, ONE).payload()
    thread.start()
    log = own_lab.log("node1.example.com")
    process = own_lab.processes.pop("node1.example.com")
    # Whether the call is running already or not, the daemon can be started again at once.
    process.send_signal(signal.SIGKILL)
    process.wait(60)
    own_lab.start("node1.example.com")
    assert own_lab.runner().call(calls.VERSION, ONE).payload() == 3010000
    thread.join()
    assert done
    assert own_lab.log("node1.example.com").startswith(log)


def test_hangup_opens_the_log_again_for_children_too(own_lab):
    own_lab.start("node1.example.com")
    runner = own_lab.runner()
    runner.call(calls.VERSION, ONE).payload()
    path = own_lab.paths("node1.example.com").log_file("ganeti-noded")
    os.rename(path, f"{path}.1")
    own_lab.processes["node1.example.com"].send_signal(signal.SIGHUP)
    # A spare from before the signal may serve a call; soon none is left.
    while not (os.path.exists(path) and "version from" in own_lab.log("node1.example.com")):
        runner.call(calls.VERSION, ONE).payload()


def test_leaving_ends_the_daemon(own_lab):
    own_lab.start()
    result = own_lab.runner().call(calls.NODE_LEAVE_CLUSTER, TWO, modify_ssh_setup=False)
    assert result.payload() == "node node2.example.com has left the cluster"
    process = own_lab.processes.pop("node2.example.com")
    assert process.wait(60) == 0
    assert not os.path.exists(own_lab.paths("node2.example.com").noded_cert_file)


def start_by_hand(lab, name, *options):
    return subprocess.run(
        [sys.executable, str(PROJECT / "daemons" / "ganeti-noded"), "-f", *options],
        env=lab.environment(name),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_second_daemon_is_refused(lab):
    done = start_by_hand(lab, lab.names[0], "-p", str(lab.port))
    assert done.returncode == 1
    assert "already running" in done.stderr


def test_address_in_use(own_lab):
    own_lab.start("node1.example.com")
    done = start_by_hand(
        own_lab,
        "node2.example.com",
        "-p",
        str(own_lab.port),
        "-b",
        own_lab.addresses["node1.example.com"],
    )
    assert done.returncode == 1
    assert "cannot serve 127.19.20.1" in done.stderr


def test_machine_of_no_cluster(own_lab):
    os.unlink(own_lab.paths("node1.example.com").noded_cert_file)
    done = start_by_hand(own_lab, "node1.example.com")
    assert done.returncode == 1
    assert "belongs to no cluster" in done.stderr


def test_damaged_certificate(own_lab):
    with open(own_lab.paths("node1.example.com").noded_cert_file, "w") as stream:
        stream.write("nonsense")
    done = start_by_hand(own_lab, "node1.example.com")
    assert done.returncode == 1
    assert "server.pem" in done.stderr


def split(pem):
    """The key and the certificate of a file which has both."""
    certificate = x509.certificate_part(pem)
    return pem.replace(certificate.strip(), ""), certificate


def own_certificate(tmp_path, signer):
    pem = x509.create_signed("node1.example.com", signer)
    key, certificate = split(pem)
    names = {"-K": tmp_path / "own.key", "-C": tmp_path / "own.crt"}
    names["-K"].write_text(key)
    names["-C"].write_text(certificate)
    return [word for option, path in names.items() for word in (option, str(path))], certificate


def test_a_certificate_of_its_own(own_lab, tmp_path):
    own_lab.start("node2.example.com")
    signer = x509.read_pem(own_lab.paths("node1.example.com").noded_cert_file)
    options, certificate = own_certificate(tmp_path, signer)
    own_lab.start("node1.example.com", "--max-clients", "1", *options)
    shown = ssl.get_server_certificate((own_lab.addresses["node1.example.com"], own_lab.port))
    assert x509.digest(shown) == x509.digest(certificate)
    # The master accepts it, and the limit is not an obstacle for one client.
    answers = own_lab.runner().call_many(calls.VERSION, [ONE, TWO])
    assert [answer.payload() for answer in answers.values()] == [3010000] * 2


def test_a_certificate_which_nobody_accepts(own_lab, tmp_path):
    options, _ = own_certificate(tmp_path, x509.create_self_signed())
    done = start_by_hand(own_lab, "node1.example.com", "-p", str(own_lab.port), *options)
    assert done.returncode == 1
    assert "is not a certificate which other nodes accept" in done.stderr


def test_the_address_of_an_interface(own_lab):
    own_lab.start("node1.example.com", "-i", "lo")
    with socket.create_connection(("127.0.0.1", own_lab.port)):
        pass


@pytest.mark.parametrize(
    ("options", "code", "fragment"),
    [
        (["--no-ssl"], 1, "does not serve without TLS"),
        (["--max-clients", "0"], 2, "not a number above 0"),
        (["-i", "lo", "-b", "127.0.0.1"], 1, "exclude each other"),
        (["-i", "nosuch0"], 1, "interface nosuch0"),
        (["-K", "/x"], 1, "need each other"),
        (["-K", "/x", "-C", "/x"], 1, "/x"),
    ],
)
def test_options_which_are_refused(own_lab, options, code, fragment):
    done = start_by_hand(own_lab, "node1.example.com", "-p", str(own_lab.port), *options)
    assert done.returncode == code
    assert fragment in done.stderr


def test_a_second_job_is_refused_while_the_first_one_works(own_lab, tmp_path):
    """Also after the process of the call was killed, and by a new master: the script works on."""
    hold, begun = tmp_path / "hold", tmp_path / "begun"
    hold.touch()
    directory = Path(own_lab.paths("node1.example.com").root, "srv/ganeti/os/slow")
    directory.mkdir(parents=True)
    (directory / "ganeti_api_version").write_text("20\n")
    (directory / "parameters.list").write_text("")
    for name, body in (
        ("create", f"echo $PPID > {begun}\nwhile [ -e {hold} ]; do sleep 0.05; done"),
        ("verify", "exit 0"),
    ):
        (directory / name).write_text(f"#!/bin/sh\n{body}\n")
        (directory / name).chmod(0o755)
    own_lab.start("node1.example.com")
    config = cluster_of(1, instances=(instance_of("web", os="slow"), instance_of("db")))
    web, db = (fill.filled_instance(config, one) for one in config.instances.values())
    runner = own_lab.runner()
    runner.use_epoch(Epoch(3, "a"))
    lines = []

    def job(number, epoch=3, owner="a"):
        own = runner.for_job(number, lines.append)
        own.use_epoch(Epoch(epoch, owner))
        return own

    def install(own, results):
        results.append(
            own.call(calls.INSTANCE_OS_ADD, ONE, instance=web, reinstall=True, debug_level=0)
        )

    def stop(own, instance):
        return own.call(calls.INSTANCE_SHUTDOWN, ONE, instance=instance, timeout_s=0, reason=[])

    results = []
    worker = threading.Thread(target=install, args=(job(12), results))
    worker.start()
    wait_until(lambda: begun.exists() and begun.read_text(), "the script runs")
    try:
        refused = stop(job(13), web).failure
        assert isinstance(refused, errors.NodeCallFailed)
        assert "job 12 is running on this instance or disk: script 'create' of the OS" in str(
            refused
        )
        assert stop(job(13), db).failure is None
        os.kill(int(begun.read_text()), signal.SIGKILL)
        wait_until(lambda: lines, "the connection is broken")
        assert "the answer about the script 'create' of the OS was lost" in lines[0]
        # A process of the job which goes on after a restart of its master may call again.
        assert stop(job(12, epoch=4), web).failure is None
        assert "job 12 is running" in str(stop(job(12, epoch=5, owner="b"), web).failure)
        # The node obeys the new master now, so the old one does not wait for it any more.
        (work,) = job(14, epoch=5, owner="b").call(calls.NODE_WORK, ONE, revoke=[]).payload()
        assert (work.job, work.epoch, work.instances) == (12, "3 a", (web.uuid,))
        assert [process.split(" ")[1] for process in work.processes]
    finally:
        hold.unlink()
        worker.join()
    assert isinstance(results[0].failure, errors.NodeCallFailed)
    again = job(15, epoch=5, owner="b")
    wait_until(
        lambda: again.call(calls.NODE_WORK, ONE, revoke=[]).payload() == [], "the script is over"
    )
    assert stop(again, web).failure is None
