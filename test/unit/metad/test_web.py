"""What guests see: pages, refusals, files of OS definitions, events."""

from __future__ import annotations

import asyncio
import io
import json
import subprocess
import tarfile

import pytest

from fakes.http_lab import HttpLab, receive_answer
from ganeti.http import messages
from ganeti.http.event_server import Incoming
from ganeti.http.messages import Refused, Response
from ganeti.metad import guests
from ganeti.metad.guests import Guests
from ganeti.metad.web import MetadataApplication

IP = "169.254.0.7"
LATEST = "/ganeti/latest"
DESCRIPTION = {
    "name": "web1",
    "uuid": "u-1",
    "os": "debian+small",
    "hypervisor": "kvm",
    "tags": ["a"],
    "hvparams": {"vnc_password_file": "/secret"},
    "primary_node": "node-uuid",
    "nics": [
        {
            "name": "ganeti:communication:web1",
            "ip": IP,
            "mac": "52:54:00:00:00:07",
            "nicparams": {"link": "communication_rt"},
        }
    ],
    "osparams_public": {"size": "1"},
    "osparams_private": {"user": "joe"},
    "osparams_secret": {"password": 'it\'s; $(rm) "hush"\nnew'},
}
HELPER = {
    "task": "install",
    "environment": {"OSP_PASSWORD": 'it\'s; $(rm) "hush"\nnew', "DISK_0_PATH": "/dev/vdb"},
}


@pytest.fixture
def known():
    found = Guests()
    found.update(guests.parse({**DESCRIPTION, "helper": HELPER}))
    return found


@pytest.fixture
def definition(tmp_path):
    path = tmp_path / "os" / "debian"
    path.mkdir(parents=True)
    (path / "create_untrusted").write_text("#!/bin/sh\n")
    (path / "create_untrusted").chmod(0o755)
    (path / "packages").mkdir()
    (path / "packages/base.tar").write_bytes(b"\0\1" * 300_000)
    (tmp_path / "outside").write_text("not for guests")
    (path / "link").symlink_to(tmp_path / "outside")
    return path


def ask(known, method, path, body=b"", *, peer=IP, search=(), headers=()):
    """(status, headers, body) of one request."""
    head = "\r\n".join([f"{method} {path} HTTP/1.1", "Host: x", *headers]).encode()
    application = MetadataApplication(known, list(search))

    async def exchange():
        try:
            accepted = await application.begin(Incoming(messages.parse_head(head), peer))
            response = accepted if isinstance(accepted, Response) else await accepted.answer(body)
        except Refused as err:
            response = application.refusal(err)
        found = response.body
        if not isinstance(found, bytes):
            found = b"".join([piece async for piece in found])
        return response.status, dict(response.headers), found

    return asyncio.run(exchange())


def test_facts_are_what_concerns_the_guest(known):
    status, headers, body = ask(known, "GET", f"{LATEST}/meta_data.json")
    found = json.loads(body)
    assert status == 200 and headers["Content-Type"] == "application/json"
    assert (found["name"], found["uuid"], found["os"]) == ("web1", "u-1", "debian+small")
    assert found["nics"][0]["ip"] == IP
    for hidden in ("hvparams", "primary_node", "helper", "osparams_secret"):
        assert hidden not in found
    assert b"hush" not in body and b"/secret" not in body


def test_parameters_come_with_their_visibility(known):
    _, _, body = ask(known, "GET", f"{LATEST}/os/parameters.json")
    assert json.loads(body) == {
        "size": ["1", "public"],
        "user": ["joe", "private"],
        "password": ['it\'s; $(rm) "hush"\nnew', "secret"],
    }


def cloud(known, page, **parameters):
    private = {"osparams_private": parameters, "osparams_secret": {}}
    known.update(guests.parse({**DESCRIPTION, "name": "web1.example.com", **private}))
    return ask(known, "GET", f"{LATEST}/nocloud/{page}")


def test_data_of_cloud_init(known):
    keys = "ssh-ed25519 AAAA me\n\nssh-rsa BBBB you\n"
    assert json.loads(cloud(known, "meta-data", ssh_key=keys)[2]) == {
        "instance-id": "u-1",
        "local-hostname": "web1.example.com",
        "public-keys": ["ssh-ed25519 AAAA me", "ssh-rsa BBBB you"],
    }
    assert "public-keys" not in json.loads(cloud(known, "meta-data")[2])
    text = "#cloud-config\npackages: [nginx]"
    assert cloud(known, "user-data", user_data=text)[2].decode() == text + "\n"
    head, _, config = cloud(known, "user-data")[2].partition(b"\n")
    assert head == b"#cloud-config"
    assert json.loads(config) == {"hostname": "web1", "fqdn": "web1.example.com"}
    assert cloud(known, "vendor-data")[::2] == (200, b"")
    # A file of the node is nothing that a guest may read.
    assert cloud(known, "user-data", user_data="/etc/shadow")[0] == 404


@pytest.mark.programs
def test_the_environment_survives_a_shell(known, tmp_path):
    _, _, body = ask(known, "GET", f"{LATEST}/os/environment")
    (tmp_path / "environment").write_bytes(body)
    said = subprocess.run(
        ["env", "-i", "sh", "-c", 'set -a; . ./environment; printf %s "$OSP_PASSWORD"'],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout == 'it\'s; $(rm) "hush"\nnew'


def test_only_a_helper_has_an_environment_and_a_task(known):
    assert ask(known, "GET", f"{LATEST}/read")[2] == b"install\n"
    known.update(guests.parse(DESCRIPTION))
    assert ask(known, "GET", f"{LATEST}/read")[::2] == (200, b"")
    assert ask(known, "GET", f"{LATEST}/os/environment")[0] == 404


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/ganeti",
        f"{LATEST}",
        f"{LATEST}/",
        "/ganeti/1.0/read",
        f"{LATEST}/os",
        f"{LATEST}/os/scripts/",
        f"{LATEST}/os/scripts/parameters.list",
        f"{LATEST}/read/",
        f"{LATEST}/os/scripts/../create",
        "/latest/meta-data",
    ],
)
def test_other_paths_do_not_exist(known, path):
    assert ask(known, "GET", path)[0] == 404


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("POST", f"{LATEST}/read", "GET"),
        ("PUT", f"{LATEST}/meta_data.json", "GET"),
        ("DELETE", f"{LATEST}/os/package", "GET"),
        ("GET", f"{LATEST}/write", "POST"),
    ],
)
def test_a_wrong_method_is_told_the_right_one(known, method, path, allowed):
    status, headers, _ = ask(known, method, path)
    assert (status, headers["Allow"]) == (405, allowed)


@pytest.mark.parametrize("page", ["meta_data.json", "os/parameters.json", "read", "os/package"])
def test_an_address_of_no_guest_sees_nothing(known, definition, page):
    status, _, body = ask(
        known, "GET", f"{LATEST}/{page}", peer="169.254.0.8", search=[definition.parent]
    )
    assert status == 404 and b"web1" not in body


def test_a_guest_sees_its_own_data_only(known):
    other = {
        **DESCRIPTION,
        "name": "web2",
        "osparams_secret": {},
        "nics": [{**DESCRIPTION["nics"][0], "ip": "169.254.0.8"}],
    }
    known.update(guests.parse(other))
    _, _, body = ask(known, "GET", f"{LATEST}/os/parameters.json", peer="169.254.0.8")
    assert "password" not in json.loads(body)


def test_scripts_and_the_package(known, definition):
    search = ["/nowhere", definition.parent]
    assert ask(known, "GET", f"{LATEST}/os/scripts/create_untrusted", search=search)[::2] == (
        200,
        b"#!/bin/sh\n",
    )
    assert ask(known, "GET", f"{LATEST}/os/scripts/verify", search=search)[0] == 404
    status, headers, body = ask(known, "GET", f"{LATEST}/os/package", search=search)
    assert status == 200 and headers["Content-Type"] == "application/x-tar"
    with tarfile.open(fileobj=io.BytesIO(body)) as archive:
        found = {member.name: member for member in archive}
    assert sorted(found) == ["create_untrusted", "link", "packages", "packages/base.tar"]
    assert found["create_untrusted"].mode & 0o111 and found["link"].issym()
    assert {member.uid for member in found.values()} == {0}


def test_an_os_that_is_not_here(known):
    status, _, body = ask(known, "GET", f"{LATEST}/os/package", search=["/nowhere"])
    assert status == 404 and b"OS debian is not on this node" in body


@pytest.mark.parametrize(
    ("value", "status"),
    [
        ("packages/base.tar", 200),
        ("", 404),
        ("missing", 404),
        ("packages", 404),
        ("/etc/passwd", 404),
        ("../../outside", 404),
        ("link", 404),
        ("packages/../../../outside", 404),
    ],
)
def test_a_package_that_a_parameter_names_is_within_the_definition(
    known, definition, value, status
):
    known.update(guests.parse({**DESCRIPTION, "osparams_public": {"os-install-package": value}}))
    found, _, body = ask(
        known, "GET", f"{LATEST}/os/os-install-package", search=[definition.parent]
    )
    assert found == status
    assert body == b"\0\1" * 300_000 if status == 200 else b"not for guests" not in body


def test_a_helper_tells_how_it_goes(known):
    write = f"{LATEST}/write"
    guest = known.named("web1")
    assert guest.report.contact is None
    assert ask(known, "POST", f"{write}?event=start")[0] == 200
    ask(known, "POST", f"{write}?event=log", b"one\n")
    ask(known, "POST", write, b"two\n")
    ask(known, "POST", f"{write}?event=exit", b" 3\n")
    assert guest.report.contact is not None
    assert (guest.report.started, guest.report.exit_code, guest.report.log) == (
        True,
        3,
        b"one\ntwo\n",
    )


@pytest.mark.parametrize(
    ("event", "body", "fragment"),
    [
        ("exit", b"well", b"exit code"),
        ("exit", b"256", b"exit code"),
        ("exit", b"", b"exit code"),
        ("party", b"", b"there is no event 'party'"),
    ],
)
def test_what_cannot_be_told(known, event, body, fragment):
    status, _, said = ask(known, "POST", f"{LATEST}/write?event={event}", body)
    assert status == 400 and fragment in said
    assert known.named("web1").report.exit_code is None


def test_nobody_can_tell_too_much(known):
    size = 256 * 1024 + 1
    lab = HttpLab(lambda: MetadataApplication(known, []), introduced=True)
    try:
        for method, path, header, body, wanted in (
            ("POST", "write", f"Content-Length: {size}", b"", 413),
            ("POST", "write", "Transfer-Encoding: chunked", b"%x\r\n" % size, 413),
            ("GET", "meta_data.json", "Content-Length: 1", b"", 413),
            ("GET", "meta_data.json", "Content-Length: 0", b"", 200),
        ):
            with lab.connect() as sock:
                lines = [f"{method} {LATEST}/{path} HTTP/1.1", "Host: h", header, "", ""]
                head = messages.introduction(IP, "192.0.2.1", 80) + "\r\n".join(lines).encode()
                sock.sendall(head + body)
                assert receive_answer(sock)[0] == wanted, (method, header)
    finally:
        lab.close()
    assert known.named("web1").report.log == b""


def test_an_unreadable_definition_is_the_nodes_fault(known, definition, monkeypatch):
    def refuse(*_args, **_keys):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(tarfile, "open", refuse)
    assert ask(known, "GET", f"{LATEST}/os/package", search=[definition.parent])[0] == 500


@pytest.mark.parametrize("odd", ["a\0b", "\0", "\ud800", "a/\udfffb"])
@pytest.mark.parametrize(
    "page", ["os/package", "os/os-install-package", "os/scripts/create", "nocloud/meta-data"]
)
def test_odd_texts_are_answered(known, definition, odd, page):
    """The configuration may have them from another program; 500 would hide the reason."""
    for changed in (
        {"osparams_public": {"os-install-package": odd, "user-data": odd, "ssh-key": odd}},
        {"os": odd},
    ):
        known.update(guests.parse({**DESCRIPTION, **changed}))
        status, _, body = ask(known, "GET", f"{LATEST}/{page}", search=[definition.parent])
        assert status in (200, 404)
        assert body


def test_the_environment_with_a_lone_surrogate(known):
    helper = {"task": "install", "environment": {"A": "x\ud800y"}}
    known.update(guests.parse({**DESCRIPTION, "helper": helper}))
    assert ask(known, "GET", f"{LATEST}/os/environment")[2] == b"A='x\\ud800y'\n"


def test_an_encoded_slash_is_no_part_of_the_path(known):
    assert ask(known, "GET", "/ganeti%2flatest/read")[0] == 404
