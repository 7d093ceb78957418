"""``gnt-cluster renew-crypto``: what is prepared for the master, and what contradicts itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from fakes.luxi_master import FakeMaster
from ganeti import errors
from ganeti.bootstrap import node_state, renewal
from ganeti.platform import paths
from ganeti.utils import x509

from ..conftest import Gnt


@pytest.fixture(autouse=True)
def credentials(here: paths.Paths) -> None:
    node_state.write_credentials(here, node_state.new_credentials(), "node1.example.com")


def waiting(here: paths.Paths, name: str) -> Path:
    return Path(here.renewal_dir) / name


def test_everything_at_once(gnt: Gnt, master: FakeMaster, here: paths.Paths) -> None:
    ended = gnt(
        "cluster renew-crypto -f --new-cluster-certificate --new-confd-hmac-key"
        " --new-rapi-certificate --new-spice-certificate --new-cluster-domain-secret"
        " --new-node-certificates"
    )
    assert ended.code == 0 and "have been replaced" in ended.out
    sent = master.opcode()
    assert sent["OP_ID"] == "OP_CLUSTER_RENEW_CRYPTO" and sent["node_certificates"] is True
    assert sent["renew_ssh_keys"] is False
    assert sorted(renewal.pending(here)) == [
        "cluster-domain-secret",
        "hmac.key",
        "rapi.pem",
        "server.pem",
        "spice-ca.pem",
        "spice.pem",
    ]
    assert Path(here.renewal_dir).stat().st_mode & 0o777 == 0o700
    for name in renewal.pending(here):
        path = waiting(here, name)
        assert path.stat().st_mode & 0o777 == 0o400
        assert (
            path.read_text() != (Path(here.data_dir) / name).read_text()
            if (Path(here.data_dir) / name).exists()
            else True
        )
    x509.verify_signed(
        waiting(here, "spice.pem").read_text(), waiting(here, "spice-ca.pem").read_text()
    )
    assert not any("PRIVATE" in str(op) for op in master.opcodes()), "no key travels by LUXI"


def test_a_pending_server_certificate_is_kept(
    gnt: Gnt, master: FakeMaster, here: paths.Paths
) -> None:
    gnt("cluster renew-crypto -f --new-cluster-certificate --new-confd-hmac-key")
    first = {name: waiting(here, name).read_text() for name in ("server.pem", "hmac.key")}
    ended = gnt("cluster renew-crypto -f --new-cluster-certificate --new-confd-hmac-key")
    assert "Continuing the interrupted renewal of: server.pem, hmac.key" in ended.out
    assert waiting(here, "server.pem").read_text() == first["server.pem"]
    assert waiting(here, "hmac.key").read_text() != first["hmac.key"]


def test_going_on_needs_no_options(gnt: Gnt, master: FakeMaster, here: paths.Paths) -> None:
    ended = gnt("cluster renew-crypto -f")
    assert ended.code == 1 and "nothing to renew" in ended.err
    assert master.opcodes() == []
    gnt("cluster renew-crypto -f --new-cluster-certificate")
    assert gnt("cluster renew-crypto -f").code == 0
    assert len(master.opcodes()) == 2


def test_given_files(gnt: Gnt, master: FakeMaster, here: paths.Paths, tmp_path: Path) -> None:
    authority = x509.create_self_signed("ca.example.com")
    signed = x509.create_signed("rapi.example.com", authority)
    (tmp_path / "rapi.pem").write_text(signed)
    (tmp_path / "ca.pem").write_text(authority)
    (tmp_path / "secret").write_text("s3cret\n")
    ended = gnt(
        f"cluster renew-crypto -f --rapi-certificate {tmp_path}/rapi.pem"
        f" --spice-certificate {tmp_path}/rapi.pem --spice-ca-certificate {tmp_path}/ca.pem"
        f" --cluster-domain-secret {tmp_path}/secret"
    )
    assert ended.code == 0
    assert waiting(here, "rapi.pem").read_text() == signed
    assert waiting(here, "spice-ca.pem").read_text() == x509.certificate_part(authority)
    assert waiting(here, "cluster-domain-secret").read_text() == "s3cret\n"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ("--new-rapi-certificate --rapi-certificate x", "exclude each other"),
        ("--new-spice-certificate --spice-certificate x --spice-ca-certificate y", "exclude each"),
        ("--new-cluster-domain-secret --cluster-domain-secret x", "exclude each other"),
        ("--spice-certificate x", "belong together"),
        ("--spice-ca-certificate x", "belong together"),
        ("--new-node-certificates --ssh-key-type rsa", "only be given with --new-ssh-keys"),
        ("--rapi-certificate /nonexistent/x.pem", "/nonexistent/x.pem"),
        ("--cluster-domain-secret /nonexistent/x", "cannot read /nonexistent/x"),
        ("--cluster-domain-secret /dev/null", "is empty"),
    ],
)
def test_refused(gnt: Gnt, master: FakeMaster, here: paths.Paths, options: str, text: str) -> None:
    ended = gnt(f"cluster renew-crypto -f {options}")
    assert ended.code == 1 and text in ended.err
    assert master.opcodes() == [] and not Path(here.renewal_dir).exists()


def test_without_force_somebody_must_agree(gnt: Gnt, master: FakeMaster, here: paths.Paths) -> None:
    ended = gnt("cluster renew-crypto --new-cluster-certificate")
    assert ended.code == 13
    assert master.opcodes() == [] and not Path(here.renewal_dir).exists()


def test_no_node_joins_meanwhile(here: paths.Paths) -> None:
    renewal.require_none_pending(here)
    renewal.prepare({renewal.SERVER: "x"}, here)
    with pytest.raises(errors.OpPrereqError, match="being renewed"):
        renewal.require_none_pending(here)
    Path(here.renewal_dir, "server.pem").unlink()
    renewal.require_none_pending(here)
    Path(here.server_ca_file).write_text("x")
    with pytest.raises(errors.OpPrereqError, match="being renewed"):
        renewal.require_none_pending(here)
    node_state.remove_state(here)
    assert not Path(here.server_ca_file).exists() and not Path(here.renewal_dir).exists()
