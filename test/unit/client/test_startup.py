"""Commands start fast: what they import before their first request is little.

100 ms from start to first request is measured by ``make bench`` (section *startup*); here it is
made sure that nobody adds what would use them up.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import simplejson

from ganeti.client import PROGRAMS
from ganeti.utils import process

#: Modules which cost milliseconds each, and which no command needs before it has an answer.
HEAVY = (
    "OpenSSL",
    "argparse",
    "ast",
    "asyncio",
    "csv",
    "cryptography",
    "dataclasses",
    "difflib",
    "email",
    "getpass",
    "http",
    "inspect",
    "ipaddress",
    "json",
    "logging",
    "pathlib",
    "pycurl",
    "pyparsing",
    "random",
    "shutil",
    "ssl",
    "subprocess",
    "tempfile",
    "textwrap",
    "threading",
    "tokenize",
    "traceback",
    "typing",
    "unittest",
    "urllib",
    "uuid",
    "yaml",
)
#: Packages of the master and of nodes.
PACKAGES = (
    "allocator",
    "backend",
    "bootstrap",
    "cmdlib",
    "config",
    "hypervisor",
    "jqueue",
    "locking",
    "master",
    "objects",
    "query",
    "rapi",
    "rpc",
    "server",
    "storage",
    "tools",
)


@pytest.mark.programs
def test_programs_import_nothing_heavy() -> None:
    site = Path(simplejson.__file__).parents[1]
    lib = Path(__file__).parents[3] / "lib"
    # Without what the interpreter's own start-up brings in for the tests' environment.
    script = (
        "import importlib, sys\n"
        f"for name in {sorted(PROGRAMS.values())!r}:\n"
        "    importlib.import_module(name)\n"
        "print(*sys.modules)\n"
    )
    done = process.run(
        [sys.executable, "-S", "-c", script], timeout_s=120, env={"PYTHONPATH": f"{lib}:{site}"}
    )
    loaded = set(done.stdout.split())
    assert not loaded & set(HEAVY)
    assert not loaded & {f"ganeti.{package}" for package in PACKAGES}


@pytest.mark.programs
def test_a_node_which_is_not_the_master_loads_no_master_daemon() -> None:
    """Systemd and the watcher start the daemon everywhere; it refuses before it costs anything."""
    script = "import sys, ganeti.server.masterd; print(*sys.modules)"
    done = process.run(
        [sys.executable, "-c", script],
        timeout_s=120,
        env={"PYTHONPATH": str(Path(__file__).parents[3] / "lib")},
    )
    loaded = set(done.stdout.split())
    assert "ganeti.server.masterd" in loaded
    assert not loaded & {f"ganeti.{name}" for name in ("cmdlib", "jqueue", "locking", "rpc")}


@pytest.mark.programs
def test_an_allocator_loads_nothing_heavy() -> None:
    """It may be started for every instance; ``dataclasses`` alone would take 40 ms."""
    top = Path(__file__).parents[3]
    request = top / "test" / "data" / "htools" / "hail-alloc-drbd.json"
    script = (
        "import os, sys\n"
        "os._exit = lambda code: None\n"  # the program ends with it
        "from ganeti.client.htools import hail\n"
        f"sys.argv = ['hail', {str(request)!r}]\n"
        "hail.run()\n"
        "print(*sys.modules)\n"
    )
    site = Path(simplejson.__file__).parents[1]
    done = process.run(
        [sys.executable, "-S", "-c", script],
        timeout_s=120,
        env={"PYTHONPATH": f"{top / 'lib'}:{site}"},
    )
    answer, modules = done.stdout.splitlines()
    assert '"success":true' in answer
    loaded = set(modules.split())
    assert "ganeti.objects.disk_templates.drbd" in loaded
    assert not loaded & {"dataclasses", "inspect", "typing", "ganeti.objects.instance"}
