"""The master's address and daemons."""

import pytest

from ganeti import errors
from ganeti.backend.cluster import master
from ganeti.objects import MasterNetworkParameters
from ganeti.platform.real import RealMachine
from ganeti.utils import net, process


def params(ip="192.0.2.100", netmask=24, netdev="eth0", ip_family=2):
    return MasterNetworkParameters(
        uuid="u", ip=ip, netmask=netmask, netdev=netdev, ip_family=ip_family
    )


@pytest.fixture
def ran(monkeypatch):
    """Commands that would have been run; each may be made to fail."""
    commands = []

    def run(argv, **options):
        commands.append(list(argv))
        for word in run.failing:
            if word in argv:
                raise errors.CommandError(list(argv), 2, "it broke")

    run.failing = []
    commands.append(run)
    monkeypatch.setattr(process, "run", run)
    monkeypatch.setattr(net, "tcp_ping", lambda *_args, **_more: False)
    monkeypatch.setattr(RealMachine, "owns_address", lambda self, ip: False)
    return commands


def test_commands():
    assert master.add_argv(params()) == [
        "ip",
        "address",
        "add",
        "192.0.2.100/24",
        "dev",
        "eth0",
        "label",
        "eth0:0",
        "preferred_lft",
        "0",
    ]
    assert master.remove_argv(params()) == ["ip", "address", "del", "192.0.2.100/24", "dev", "eth0"]
    assert master.announce_argv(params())[0] == "arping"
    assert master.announce_argv(params(ip="2001:db8::1", netmask=64, ip_family=10)) == [
        "ndisc6",
        "-q",
        "-r",
        "3",
        "2001:db8::1",
        "eth0",
    ]


def test_activate(ran):
    master.activate_ip(params(), False)
    assert [argv[:3] for argv in ran[1:]] == [["ip", "address", "add"], ["arping", "-q", "-U"]]


@pytest.mark.parametrize("ip", ["127.0.0.1", "127.19.1.200", "::1"])
def test_loopback_needs_nothing(ran, ip):
    master.activate_ip(params(ip=ip, netmask=32), False)
    master.deactivate_ip(params(ip=ip, netmask=32), False)
    assert ran[1:] == []


def test_active_already(ran, monkeypatch):
    monkeypatch.setattr(RealMachine, "owns_address", lambda self, ip: True)
    master.activate_ip(params(), False)
    assert ran[1:] == []
    master.deactivate_ip(params(), False)
    assert ran[1:] == [master.remove_argv(params())]


def test_active_elsewhere(ran, monkeypatch):
    monkeypatch.setattr(net, "tcp_ping", lambda *_args, **_more: True)
    with pytest.raises(errors.OpExecError, match="in use on another machine"):
        master.activate_ip(params(), False)
    assert ran[1:] == []


def test_failures(ran):
    ran[0].failing = ["arping"]
    master.activate_ip(params(), False)
    ran[0].failing = ["ip"]
    with pytest.raises(errors.OpExecError, match=r"cannot add master address 192.0.2.100.*broke"):
        master.activate_ip(params(), False)


@pytest.mark.parametrize(
    "wrong",
    [{"ip": "nonsense"}, {"netmask": 0}, {"netmask": 33}, {"ip": "127.0.0.1", "netmask": 64}],
)
def test_bad_parameters(ran, wrong):
    for function in (master.activate_ip, master.deactivate_ip):
        with pytest.raises(errors.ConfigurationError):
            function(params(**wrong), False)
    assert ran[1:] == []


@pytest.mark.programs
def test_external_script(here, script):
    with pytest.raises(errors.OpExecError, match="does not exist or is not executable"):
        master.activate_ip(params(), True)
    out = here.to_local("/etc/out")
    script(
        f"{here.user_scripts_dir}/master-ip-setup",
        f'echo "$1 $MASTER_IP/$MASTER_NETMASK $MASTER_NETDEV $CLUSTER_IP_VERSION" >> {out}',
    )
    master.activate_ip(params(), True)
    master.deactivate_ip(params(), True)
    with open(out) as stream:
        assert stream.read() == "start 192.0.2.100/24 eth0 4\nstop 192.0.2.100/24 eth0 4\n"
    script(f"{here.user_scripts_dir}/master-ip-setup", "echo no luck; exit 1")
    with pytest.raises(errors.OpExecError, match="no luck"):
        master.activate_ip(params(), True)


def test_daemons(ran):
    master.start_master_daemons(False)
    master.stop_master()
    assert [argv[1:] for argv in ran[1:]] == [["start-master"], ["stop-master"]]
    master.start_master_daemons(True)
    assert ran[3][1:] == ["start", "ganeti-masterd", "--no-voting", "--yes-do-it"]
    ran[0].failing = ["start-master"]
    with pytest.raises(errors.OpExecError, match=r"cannot start.*it broke"):
        master.start_master_daemons(False)
