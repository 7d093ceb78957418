"""What the parts of the cluster cost, counted: modules, flushes, bytes, handles.

Seconds depend on the machine, counts do not: a change which imports more, flushes more often, or
sends what has not changed fails here on any machine. ``test/scenario/test_counts.py`` counts what
whole operations cost, and ``test/scenario/test_flushes.py`` what they flush.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import simplejson

from ganeti.config.local_file import LocalFile
from ganeti.config.sending import Distribution, DistributionFailure
from ganeti.config.store import ConfigStore
from ganeti.config.text import ConfigText
from ganeti.configfile.files import write_config_file
from ganeti.http import client
from ganeti.jobstore.store import QueueStore
from ganeti.query import view
from ganeti.query.resources import node
from ganeti.query.view import View
from ganeti.utils import process

sys.path.insert(0, str(Path(__file__).parent / "config"))
from samples import disk_of, instance_of, small_cluster  # noqa: E402

HINT = "If that is intended, change the number here, and say in the commit why it is needed."

#: Program -> what it imports until it serves or sends its first request, and the number of modules
#: of this project which that may load.
MODULES = {
    "ganeti-noded": ("from ganeti.backend import registry; registry.handlers()", 284),
    "ganeti-masterd": (
        "import ganeti.server.mastering; from ganeti import cmdlib; cmdlib.load()",
        560,
    ),
    "ganeti-rapi": ("import ganeti.server.rapi", 192),
    "ganeti-confd": ("import ganeti.server.confd", 119),
    "ganeti-mond": ("import ganeti.server.mond", 88),
    "gnt-instance": ("import ganeti.client.gnt_instance.program", 63),
    "gnt-node": ("import ganeti.client.gnt_node.program", 52),
}


def _modules_after(code: str) -> set[str]:
    """Return the names of the modules which a new Python has after these statements."""
    lib, site = Path(__file__).parents[2] / "lib", Path(simplejson.__file__).parents[1]
    done = process.run(
        [sys.executable, "-c", f"import sys; {code}; print(*sys.modules)"],
        timeout_s=120,
        env={"PYTHONPATH": f"{lib}:{site}"},
    )
    return set(done.stdout.split())


@pytest.mark.programs
@pytest.mark.parametrize("program", MODULES)
def test_a_program_loads_no_more_modules(program: str) -> None:
    code, most = MODULES[program]
    loaded = [name for name in _modules_after(code) if name.startswith("ganeti")]
    assert len(loaded) <= most, (
        f"{program} loads {len(loaded)} modules of this project, and may load {most}. {HINT}"
    )


#: Program -> modules which it may not load until then, and the memory which each of them needs:
#: asyncio 7 MiB, pyparsing 9, pycurl 4, ssl 3, email and ctypes 1, the others half as much.
COSTLY = (
    "asyncio ctypes email html http.client logging.handlers multiprocessing numpy opentelemetry"
    " OpenSSL pickle pycurl pyparsing ssl unittest urllib.request xml yaml"
).split()
NEEDED = {
    "ganeti-noded": {"ssl"},
    "ganeti-masterd": {"pycurl", "ssl"},
    "ganeti-rapi": {"asyncio", "html", "pycurl", "ssl"},
    "ganeti-confd": set[str](),
    "ganeti-mond": {"asyncio", "ssl"},
    "gnt-instance": set[str](),
    "gnt-node": set[str](),
}


@pytest.mark.programs
@pytest.mark.parametrize("program", NEEDED)
def test_a_program_loads_no_costly_module_which_it_does_not_need(program: str) -> None:
    code, _most = MODULES[program]
    if program.startswith("ganeti-"):
        code += f"; import ganeti.server.{program.removeprefix('ganeti-')}"
    loaded = _modules_after(code)
    wrong = loaded.intersection(COSTLY) - NEEDED[program]
    assert not wrong, f"{program} loads {', '.join(sorted(wrong))}. {HINT}"


class Flushes:
    """Counts what is flushed to the disk."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.number = 0
        for name in ("fsync", "fdatasync"):
            monkeypatch.setattr(os, name, self._flush)

    def _flush(self, _fd: int) -> None:
        self.number += 1


class Candidates:
    """Candidates which accept everything, and count the bytes of the differences."""

    def __init__(self) -> None:
        self.bytes = 0

    def __call__(self, message: Distribution) -> list[DistributionFailure]:
        difference = message.difference()
        assert difference is not None, "the whole configuration was sent"
        self.bytes += sum(len(part) for part in difference.parts if isinstance(part, bytes))
        return []


def _commit_costs(
    directory: Path, instances: int, monkeypatch: pytest.MonkeyPatch
) -> tuple[int, int]:
    """Change one instance of a cluster; return the flushes and the bytes for each candidate."""
    data = small_cluster()
    made = [instance_of(number) for number in range(1, instances + 1)]
    disks = [disk_of(number) for number in range(1, instances + 1)]
    tables: dict[str, Any] = {
        "instances": {one.uuid: one for one in made},
        "disks": {one.uuid: one for one in disks},
    }
    data = dataclasses.replace(data, **tables)
    path = str(directory / f"config-{instances}.data")
    write_config_file(path, ConfigText(data).render(data, ()))
    candidates = Candidates()
    store = ConfigStore(LocalFile(path), data, distribute=candidates)
    store.adopt_copies()
    with store.transaction() as change:
        change.instances.mark(made[0].uuid, "down")
    candidates.bytes = 0
    flushes = Flushes(monkeypatch)
    with store.transaction() as change:
        change.instances.mark(made[0].uuid, "up")
    return flushes.number, candidates.bytes


def test_a_change_of_the_configuration_costs_the_same_in_every_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = _commit_costs(tmp_path, 200, monkeypatch)
    large = _commit_costs(tmp_path, 2000, monkeypatch)
    assert small[0] == large[0] <= 2, (
        f"a commit flushes {large[0]} times: file and directory. {HINT}"
    )
    assert large[1] <= 1.2 * small[1], (
        f"a change of one instance sends {large[1]} bytes to each candidate with 2,000 instances,"
        f" {small[1]} with 200. {HINT}"
    )
    assert large[1] <= 1000, (
        f"a change of one instance sends {large[1]} bytes to each candidate, more than what is new"
        f" in it. {HINT}"
    )


@pytest.mark.parametrize("jobs", [1, 50])
def test_a_commit_of_jobs_flushes_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: int
) -> None:
    store = QueueStore(str(tmp_path / "queue"))
    store.open()
    store.commit({"job-1": "{}"})
    flushes = Flushes(monkeypatch)
    store.commit({f"job-{number}": "{}" for number in range(2, 2 + jobs)})
    assert flushes.number == 1, f"a commit of {jobs} jobs flushes {flushes.number} times. {HINT}"
    store.abandon()


def test_handles_which_a_burst_of_calls_leaves_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    asker = client.Client("ca.pem", "own.pem")
    request = client.OutgoingRequest("192.0.2.1", 1811, "version", b"[]", 1.0, keep=True)
    burst = [asker.open(0, request, alone=True) for _ in range(10)]
    for transfer in burst:
        asker.close(transfer, alone=True)
    idle = asker.idle_handles()
    assert idle == 10
    asker.sweep()
    assert asker.idle_handles() == 10, "they are used again while their connections are kept"
    monkeypatch.setattr(client, "_KEEP_S", 0)
    asker.sweep()
    assert asker.idle_handles() == 1, f"each idle handle needs up to 300 KiB. {HINT}"
    monkeypatch.setattr(client, "_KEEP_LAST_S", 0)
    asker.sweep()
    assert asker.idle_handles() == 0, "nobody has called that node for a long time"
    asker.reset()


def test_a_list_of_one_node_sorts_only_its_instances(monkeypatch: pytest.MonkeyPatch) -> None:
    """The names of all instances of a large cluster take longer than all the rest of the list."""
    data = small_cluster()
    made = {one.uuid: one for one in (instance_of(number) for number in range(1, 301))}
    seen = View(dataclasses.replace(data, instances=made))
    sorted_names: list[str] = []
    monkeypatch.setattr(view, "natural_key", lambda name: sorted_names.append(name) or name)
    for one in data.nodes.values():
        for field in ("pinst_cnt", "sinst_cnt"):
            node.RESOURCE.fields[field].get(seen, one)
    assert not sorted_names, f"{len(sorted_names)} names are sorted to count instances. {HINT}"
    first = next(iter(data.nodes.values()))
    names = node.RESOURCE.fields["pinst_list"].get(seen, first)
    assert len(sorted_names) == len(names) > 0
