"""The users of a chaos run: threads which submit jobs and note the answers.

Four kinds: programs on the local socket (LUXI), programs on REST, administrators with commands, and
``burnin``. Each user asks any node whose master daemon runs, also one which was replaced or
cut off: that is how a second master would be found. What a user does depends on the seed, but not
on the answers' times, so a run is repeated in its kind and not in each step.
"""

from __future__ import annotations

import abc
import base64
import http.client
import json
import random
import signal
import ssl
import subprocess
import threading
from collections.abc import Callable
from typing import Any, Final

from devel.chaos import history
from devel.chaos.checker import FINAL, REST
from devel.chaos.history import BEGUN, FAILED, OK, UNKNOWN, History, Operation, now
from devel.chaos.lab import OS_NAME, QUIET_OS, REST_USER, Lab
from devel.chaos.luxi import Luxi, RefusedError

#: The instances on which all users work; the last ones have disks which all nodes reach.
DISKLESS: Final = ("a1.example.com", "a2.example.com")
SHARED: Final = ("b1.example.com", "b2.example.com", "b3.example.com")
_PAUSE_S: Final = (0.1, 0.6)
# Seconds for which a user looks for the end of a job.
_WAIT_S: Final = 25.0


class User(threading.Thread, abc.ABC):
    """A user; each kind says what it does.

    :param seed: decides what it does.
    """

    via = ""

    def __init__(self, name: str, lab: Lab, records: History, seed: int) -> None:
        super().__init__(name=name, daemon=True)
        self.lab = lab
        self.records = records
        self.rng = random.Random(f"{seed}/{name}")
        self.stopping = threading.Event()
        self.resting = threading.Event()
        self.error: BaseException | None = None
        self._serial = 0

    def run(self) -> None:
        """Work until the run stops it."""
        try:
            while not self.stopping.is_set():
                if not self.resting.is_set():
                    self.work()
                self.stopping.wait(self.rng.uniform(*_PAUSE_S))
        except BaseException as err:  # noqa: BLE001 - the run reports what a user died of
            self.error = err

    @abc.abstractmethod
    def work(self) -> None:
        """Do one thing."""

    def token(self, kind: str) -> str:
        """Make a name which nobody else has."""
        self._serial += 1
        return f"{kind}-{self.name}-{self._serial}"

    def somewhere(self) -> str:
        """Choose a node: one with a master daemon, and sometimes any."""
        masters = self.lab.masters()
        if masters and self.rng.random() < 0.95:
            return self.rng.choice(masters)
        return self.rng.choice(self.lab.nodes)

    def note(
        self, kind: str, subject: str, value: str, began: float, outcome: str, **more: Any
    ) -> None:
        """Write an operation which ends now."""
        self.records.add(
            Operation(self.name, self.via, kind, subject, value, began, now(), outcome, **more)
        )

    def tagged(self) -> tuple[str, str]:
        """Choose an object for a tag: its kind, and its name, which is empty for the cluster."""
        kind = self.rng.choice(("cluster", "instance", "node"))
        names = {
            "cluster": ("",),
            "instance": (*DISKLESS, *SHARED),
            "node": tuple(self.lab.nodes),
        }
        return kind, self.rng.choice(names[kind])


class LuxiUser(User):
    """A program on the local socket: jobs that wait, set tags, run OS scripts, or move guests."""

    via = "luxi"

    def work(self) -> None:
        """Submit one to four jobs, and look for the end of one."""
        jobs = [self._job() for _ in range(self.rng.choice((1, 1, 2, 4)))]
        node, began = self.somewhere(), now()
        try:
            luxi = Luxi(self.lab.socket(node))
        except OSError:
            return
        with luxi:
            try:
                if len(jobs) == 1:
                    answers = [[True, luxi.call("SubmitJob", jobs[0])]]
                else:
                    answers = luxi.call("SubmitManyJobs", jobs)
            except (OSError, RefusedError) as err:
                outcome = FAILED if isinstance(err, RefusedError) else UNKNOWN
                for job in jobs:
                    token = job[0]["comment"]
                    self.note(
                        history.SUBMIT, token, "", began, outcome, node=node, error=str(err)[:200]
                    )
                return
            accepted = []
            for job, (success, value) in zip(jobs, answers, strict=True):
                token = job[0]["comment"]
                if success:
                    accepted.append((job, int(value)))
                    self.note(history.SUBMIT, token, "", began, OK, job=int(value), node=node)
                else:
                    self.note(
                        history.SUBMIT, token, "", began, FAILED, node=node, error=str(value)[:200]
                    )
        if accepted and self.rng.random() < 0.15:
            self._cancel(node, self.rng.choice(accepted)[1])
        if accepted and self.rng.random() < 0.75:
            self._see_end(*self.rng.choice(accepted), began)

    def _job(self) -> list[dict[str, Any]]:
        kind = self.rng.choices(("delay", "tag", "script", "life"), (5, 4, 2, 3))[0]
        make: Callable[[], list[dict[str, Any]]] = getattr(self, f"_{kind}")
        token = self.token(kind)
        ops = make()
        for op in ops:
            op["comment"] = token
        if kind == "tag":
            ops[0]["tags"] = [token]
        if kind == "script":
            ops[-1]["osparams"] = {"token": token}
        return ops

    def _delay(self) -> list[dict[str, Any]]:
        nodes = self.rng.sample(
            self.lab.nodes, min(self.rng.choice((0, 0, 1, 3)), len(self.lab.nodes))
        )
        op = {
            "OP_ID": "OP_TEST_DELAY",
            "duration": round(self.rng.uniform(0, 1), 2),
            "on_master": not nodes,
            "on_nodes": nodes,
            "no_locks": self.rng.random() < 0.5,
        }
        return [dict(op) for _ in range(self.rng.choice((1, 1, 2)))]

    def _tag(self) -> list[dict[str, Any]]:
        kind, name = self.tagged()
        return [{"OP_ID": "OP_TAGS_SET", "kind": kind, "name": name or None}]

    def _script(self) -> list[dict[str, Any]]:
        name = self.rng.choice(SHARED)
        return [
            {
                "OP_ID": "OP_INSTANCE_SHUTDOWN",
                "instance_name": name,
                "timeout": 5,
                "no_remember": False,
            },
            {"OP_ID": "OP_INSTANCE_REINSTALL", "instance_name": name, "os_type": OS_NAME},
        ]

    def _life(self) -> list[dict[str, Any]]:
        name = self.rng.choice((*DISKLESS, *SHARED))
        what = self.rng.choice(("STARTUP", "STARTUP", "SHUTDOWN", "REBOOT", "MIGRATE", "FAILOVER"))
        op: dict[str, Any] = {"OP_ID": f"OP_INSTANCE_{what}", "instance_name": name}
        if what == "REBOOT":
            op["reboot_type"] = self.rng.choice(("soft", "hard", "full"))
        if what in ("MIGRATE", "FAILOVER"):
            op["target_node"] = self.rng.choice(self.lab.nodes)
        return [op]

    def _cancel(self, node: str, job: int) -> None:
        try:
            with Luxi(self.lab.socket(node)) as luxi:
                luxi.call("CancelJob", job, False)
        except (OSError, RefusedError):
            return

    def _see_end(self, job: list[dict[str, Any]], number: int, began: float) -> None:
        token, deadline = job[0]["comment"], now() + _WAIT_S
        while now() < deadline and not self.stopping.is_set():
            node = self.somewhere()
            try:
                with Luxi(self.lab.socket(node)) as luxi:
                    (row,) = luxi.call("QueryJobs", [number], ["status"])
            except (OSError, RefusedError):
                row = None
            if row and row[0] in FINAL:
                self.note(history.END, token, row[0], began, OK, job=number, node=node)
                if job[0]["OP_ID"] == "OP_TAGS_SET":
                    subject = f"{job[0]['kind']}/{job[0]['name'] or ''}"
                    outcome = OK if row[0] == "success" else FAILED
                    self.note(
                        history.ADD_TAG, subject, token, began, outcome, job=number, node=node
                    )
                return
            self.stopping.wait(0.3)


class CommandUser(User):
    """An administrator: adds and removes tags and instances, and reads lists."""

    via = "command"

    def __init__(self, name: str, lab: Lab, records: History, seed: int) -> None:
        super().__init__(name, lab, records, seed)
        self._tags: list[tuple[str, str, str]] = []
        self._instances: list[str] = []

    def work(self) -> None:
        """Run one command."""
        what = self.rng.choices(
            (self._add_tag, self._remove_tag, self._create, self._remove, self._read),
            (8, 2, 2, 1, 1),
        )[0]
        what()

    def _command(self, kind: str, subject: str, value: str, *argv: str) -> str:
        node, began = self.somewhere(), now()
        if kind in history.REMOVALS:
            self.note(kind, subject, value, began, BEGUN, node=node)
        done = self.lab.run(node, *argv)
        outcome = {0: OK, None: UNKNOWN}.get(done.code, FAILED)
        # The answer did not come, so what happened is not known. Exit code 1 has both kinds.
        if outcome == FAILED and kind == history.REMOVE:
            outcome = UNKNOWN
        error = "" if done.ok else done.err[-200:]
        if "Traceback" in done.text:
            error = f"Traceback: {done.text[-600:]}"
        self.note(kind, subject, value, began, outcome, node=node, error=error)
        return outcome

    def _tag_argv(self, what: str, kind: str, name: str, tag: str) -> tuple[str, ...]:
        return (f"gnt-{kind}", what, *([name] if name else []), tag)

    def _add_tag(self) -> None:
        kind, name = self.tagged()
        tag = self.token("tag")
        subject = f"{kind}/{name}"
        argv = self._tag_argv("add-tags", kind, name, tag)
        if self._command(history.ADD_TAG, subject, tag, *argv) == OK:
            self._tags.append((kind, name, tag))

    def _remove_tag(self) -> None:
        if not self._tags:
            return
        kind, name, tag = self._tags.pop(self.rng.randrange(len(self._tags)))
        argv = self._tag_argv("remove-tags", kind, name, tag)
        self._command(history.REMOVE_TAG, f"{kind}/{name}", tag, *argv)

    def _create(self) -> None:
        name = f"{self.token('c')}.example.com"
        argv = [
            "gnt-instance", "add", "-n", self.rng.choice(self.lab.nodes), "--no-nics",
            "--no-name-check", "--no-wait-for-sync", "-o", OS_NAME, "-O", f"token=create-{name}",
        ]  # fmt: skip
        if self.rng.random() < 0.5:
            argv += ["-t", "diskless", "--no-install", "--no-start"]
        else:
            argv += ["-t", "file", "-s", "4M", "--no-start"]
        if self._command(history.CREATE, name, "", *argv, name) == OK:
            self._instances.append(name)

    def _remove(self) -> None:
        if len(self._instances) < 3:
            return
        name = self._instances.pop(self.rng.randrange(len(self._instances)))
        self._command(history.REMOVE, name, "", "gnt-instance", "remove", "-f", name)

    def _read(self) -> None:
        argv = self.rng.choice(
            (
                ("gnt-instance", "list"),
                ("gnt-node", "list"),
                ("gnt-job", "list"),
                ("gnt-cluster", "info"),
            )
        )
        self._command(history.READ, " ".join(argv), "", *argv)


class RestUser(User):
    """A program on REST: sets tags, and looks for the end of its jobs."""

    via = "rest"

    def __init__(self, name: str, lab: Lab, records: History, seed: int) -> None:
        super().__init__(name, lab, records, seed)
        self._context = ssl.create_default_context()
        self._context.check_hostname = False
        self._context.verify_mode = ssl.CERT_NONE

    def _ask(self, node: str, method: str, path: str) -> tuple[int, Any]:
        """Send a request; returns the status and the value.

        :raises OSError: no answer came.
        """
        connection = http.client.HTTPSConnection(
            self.lab.address(node), 5080, context=self._context, timeout=30
        )
        credentials = base64.b64encode(":".join(REST_USER).encode()).decode()
        try:
            connection.request(method, path, headers={"Authorization": f"Basic {credentials}"})
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        except (http.client.HTTPException, ValueError) as err:
            raise ConnectionError(f"the answer is broken: {err}") from err
        finally:
            connection.close()

    def work(self) -> None:
        """Add a tag, and see the end of its job."""
        kind, name = self.tagged()
        tag = self.token(REST.rstrip("-"))
        place = {"cluster": "/2", "instance": f"/2/instances/{name}", "node": f"/2/nodes/{name}"}
        node, began = self.somewhere(), now()
        try:
            status, value = self._ask(node, "PUT", f"{place[kind]}/tags?tag={tag}")
        except ConnectionRefusedError:
            return
        except OSError as err:
            self.note(history.SUBMIT, tag, "", began, UNKNOWN, node=node, error=str(err)[:200])
            return
        if status != 200 or not str(value).isdigit():
            self.note(history.SUBMIT, tag, "", began, FAILED, node=node, error=str(value)[:200])
            return
        number = int(value)
        self.note(history.SUBMIT, tag, "", began, OK, job=number, node=node)
        deadline = now() + _WAIT_S
        while now() < deadline and not self.stopping.is_set():
            node = self.somewhere()
            try:
                status, value = self._ask(node, "GET", f"/2/jobs/{number}")
            except OSError:
                status, value = 0, {}
            if status == 200 and value.get("status") in FINAL:
                found = value["status"]
                self.note(history.END, tag, found, began, OK, job=number, node=node)
                outcome = OK if found == "success" else FAILED
                self.note(
                    history.ADD_TAG, f"{kind}/{name}", tag, began, outcome, job=number, node=node
                )
                return
            self.stopping.wait(0.5)


class BurninUser(User):
    """Runs ``burnin`` again and again; it fails when parts fail, and cleans up all the same.

    :ivar runs: how often it ended, by its exit code.
    """

    via = "burnin"

    def __init__(self, name: str, lab: Lab, records: History, seed: int) -> None:
        super().__init__(name, lab, records, seed)
        self.runs: dict[int, int] = {}
        self._left: list[str] = []
        self._process: subprocess.Popen[bytes] | None = None

    def work(self) -> None:
        """Run it once."""
        if not self.lab.masters():
            return
        self._clean_up()
        names = [f"{self.token('burn')}.example.com" for _ in range(2)]
        self._left += names
        template = self.rng.choice(("diskless", "sharedfile"))
        self._process = self.lab.start(
            self.somewhere(), "burnin", "-o", QUIET_OS, "-t", template, "--disk-size", "4m",
            "--mem-size", "8m", "--vcpu-count", "1", "--no-name-check", *names,
            output=self.lab.directory / "burnin.log",
        )  # fmt: skip
        while self._process.poll() is None:
            if self.stopping.wait(0.3):
                self._process.send_signal(signal.SIGINT)
                break
        code = self._process.wait()
        self.runs[code] = self.runs.get(code, 0) + 1

    def _clean_up(self) -> None:
        """Remove what an earlier run could not remove, because no master was there."""
        for node in self.lab.masters()[:1]:
            known = {one["name"] for one in self.lab.config(node).get("instances", {}).values()}
            self._left = [name for name in self._left if name in known]
            for name in self._left:
                self.lab.run(node, "gnt-instance", "remove", "-f", name)


def crowd(lab: Lab, records: History, seed: int) -> list[User]:
    """Make the users of a run."""
    return [
        LuxiUser("luxi1", lab, records, seed),
        LuxiUser("luxi2", lab, records, seed),
        CommandUser("admin1", lab, records, seed),
        CommandUser("admin2", lab, records, seed),
        RestUser("rest1", lab, records, seed),
        BurninUser("burnin1", lab, records, seed),
    ]
