"""The client certificate, and leaving the cluster."""

import os
import stat

import pytest

from ganeti import errors
from ganeti.backend.cluster import credentials
from ganeti.utils import daemonize, x509


@pytest.fixture
def member(here):
    with open(here.noded_cert_file, "w") as stream:
        stream.write(x509.create_self_signed())
    return here


def test_tokens(member):
    [[kind, digest]] = credentials.crypto_tokens([["ssl", "create", {"serial_no": 42}]])
    path = member.noded_client_cert_file
    assert (kind, digest) == ("ssl", x509.digest_file(path))
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o440
    assert x509.describe(x509.read_pem(path)).serial_no == 42
    x509.verify_signed(x509.read_pem(path), x509.read_pem(member.noded_cert_file))
    assert credentials.crypto_tokens([["ssl", "get", None]]) == [["ssl", digest]]
    assert credentials.crypto_tokens([["ssl", "delete", None]]) == []
    with pytest.raises(errors.X509CertError, match="No such file"):
        credentials.crypto_tokens([["ssl", "get", None]])


def test_certificate_in_waiting(member):
    credentials.crypto_tokens([["ssl", "create", {"cert_file": "/var/lib/ganeti/client.pem.tmp"}]])
    assert os.path.exists(member.noded_client_cert_file + ".tmp")
    assert not os.path.exists(member.noded_client_cert_file)


@pytest.mark.parametrize(
    "request_",
    [
        [],
        ["ssl", "get"],
        ["ssh", "get", None],
        ["ssl", "steal", None],
        ["ssl", "create", 1],
        ["ssl", "create", {"colour": 1}],
        ["ssl", "create", {"cert_file": "/etc/passwd"}],
        ["ssl", "create", {"serial_no": "1"}],
        ["ssl", "create", {"serial_no": -1}],
    ],
)
def test_bad_requests_do_nothing(member, request_):
    with pytest.raises(errors.ParameterError):
        credentials.crypto_tokens([["ssl", "create", None], request_])
    assert not os.path.exists(member.noded_client_cert_file)


def test_leave(member):
    credentials.crypto_tokens([["ssl", "create", None]])
    for path in (
        member.cluster_conf_file,
        member.hmac_key,
        member.ssconf_file("master_node"),
        f"{member.queue_dir}/job-1",
        member.queue_serial_file,
        member.watcher_pausefile,
        member.watcher_state_file("uuid-of-a-group"),
        member.watcher_balance_file,
    ):
        with open(path, "w") as stream:
            stream.write("x")
    os.mkdir(member.cluster_conf_history_dir)
    with open(f"{member.cluster_conf_history_dir}/commits-1", "w") as stream:
        stream.write("x")
    kept = f"{member.data_dir}/of-the-administrator"
    with open(kept, "w") as stream:
        stream.write("x")
    with pytest.raises(errors.QuitGanetiException) as caught:
        credentials.leave_cluster(False)
    assert caught.value.args[0] is True
    assert sorted(os.listdir(member.data_dir)) == ["of-the-administrator", "queue"]
    assert os.listdir(member.queue_dir) == ["archive"]


def test_master_does_not_leave(member):
    pid_file = daemonize.PidFile(member.pid_file("ganeti-masterd"))
    pid_file.acquire()
    try:
        with pytest.raises(errors.ConfigurationError, match="master daemon runs"):
            credentials.leave_cluster(False)
    finally:
        pid_file.release()
    assert os.path.exists(member.noded_cert_file)
