"""Sessions of browsers on a real cluster: failures and the failover of the master end none."""

from __future__ import annotations

import http.client
import json
import ssl
from typing import Any

from harness import PATIENCE_S, ROOT, Cluster, wait_until

COOKIE = "__Host-ganeti-session"


class Browser:
    """Keeps the cookie, and says from which page it sends its requests."""

    def __init__(self, cluster: Cluster, node: str) -> None:
        self.cluster = cluster
        self.cookie = ""
        self.go_to(node)

    def go_to(self, node: str) -> None:
        self._address = self.cluster.node_fields(node, "pip")[0]

    def __call__(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        connection = http.client.HTTPSConnection(
            self._address, 5080, context=context, timeout=PATIENCE_S
        )
        headers = {"Origin": f"https://{self._address}:5080", "Cookie": self.cookie}
        if body is not None:
            headers["Content-Type"] = "application/json"
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        with connection.getresponse() as response:
            sent = response.getheader("Set-Cookie")
            if sent:
                self.cookie = sent.partition(";")[0]
            return response.status, json.loads(response.read())

    def log_in(self, user: str = "jill", password: str = "secret") -> int:
        return self("POST", "/2/login", {"user": user, "password": password})[0]

    def status(self) -> int:
        try:
            return self("GET", "/2/session")[0]
        except OSError:
            # The daemon does not run yet.
            return 0


def test_a_session_survives_the_daemons_and_the_master(cluster: Cluster) -> None:
    program = str(ROOT / "tools" / "rapi-passwd")
    for user in ("jill", "jack"):
        cluster.run(program, "--stdin", "--rights", "write", user, stdin="secret\n").ok()
    cluster.run("gnt-cluster", "redist-conf").ok()
    first, second = cluster.node_names[:2]
    jill, jack = Browser(cluster, first), Browser(cluster, first)
    assert jill.log_in(password="wrong") == 401 and not jill.cookie
    assert jill.log_in() == 200 and jack.log_in("jack") == 200
    assert jill.cookie.startswith(COOKIE)
    text = cluster.path(first, "var/lib/ganeti/config.data").read_text()
    assert jill.cookie.partition("=")[2] not in text

    # The daemon is killed.
    cluster.kill_whole(first, "ganeti-rapi")
    cluster.on(first, "daemon-util", "start", "ganeti-rapi").ok()
    wait_until(lambda: jill.status() == 200, "the REST daemon answers again")
    # The master daemon is killed; the copy of the REST daemon serves meanwhile.
    cluster.kill_whole(first, "ganeti-masterd")
    assert jill.status() == 200
    cluster.on(first, "daemon-util", "start", "ganeti-masterd").ok()
    # The master fails over.
    cluster.on(second, "gnt-cluster", "master-failover").ok()
    for browser in (jill, jack):
        browser.go_to(second)
    wait_until(lambda: jill.status() == 200, "the session is valid at the new master")
    status, number = jill("PUT", "/2/tags?tag=blue")
    assert status == 200, number

    # What ends a session.
    assert {one["user"] for one in jill("GET", "/2/sessions")[1]} == {"jill", "jack"}
    cluster.run(program, "--stdin", "jack", stdin="other\n").ok()
    wait_until(lambda: jack.status() == 401, "the new password ends the session")
    assert jill("POST", "/2/logout")[0] == 200
    assert jill.status() == 401
    assert jill.log_in() == 200
    cluster.run(program, "--delete", "jill").ok()
    wait_until(lambda: jill.status() == 401, "the session ends with its user")
