"""Seeds of a simulated cluster: random changes, kills, partitions, restarts, failovers.

``python -m devel.simnodes.explore --seeds 0-999`` runs seeds and prints those which break a
promise; ``--seed N`` replays one and prints each step.

A cluster of three to seven simulated nodes is in this process. Real are: the store of the
configuration with its commits and messages (:class:`ganeti.config.store.ConfigStore`), their
distribution, the votes and the choice of a master (:mod:`ganeti.rpc.voting`,
:mod:`ganeti.config.role`), and the way from a call to its answer on a node
(:func:`devel.simnodes.server.answer`). Simulated are the network, which loses requests and answers,
and the disks: nodes keep a journal beside their configuration, or have an older version which does
not; they lose their power while they write to it and while they fold it in. Everything happens in
one thread, in an order which follows from the seed.

A *master* is a store on a node with an epoch. A killed master stops at a random call; one that was
cut off goes on later and tries to change something, as a process does which was paused. These
promises of the project are checked after each step:

- an acknowledged change is in the configuration of every later master (promises 1 and 2);
- the file of every node is a whole configuration at every moment, without its journal, too;
- a node never takes a change of a master after it has promised a newer epoch, and no change is
  acknowledged to a master after a majority has done so (promise 3).
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import logging
import random
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

from devel.simnodes import server as simserver
from devel.simnodes.cluster import node_name
from devel.simnodes.state import Fleet, SimNode
from ganeti import errors
from ganeti.bootstrap.first_config import build_config
from ganeti.bootstrap.init_params import InitParams
from ganeti.config.local_file import LocalFile
from ganeti.config.members import members_of
from ganeti.config.role import judge, newer_copies
from ganeti.config.store import ConfigStore
from ganeti.config.text import ConfigText, Pieces
from ganeti.configfile.content import Change
from ganeti.constants import ssconf as ssconf_const
from ganeti.http import client as http_client
from ganeti.http.server import AuthorisedRequest
from ganeti.objects import ConfigData, Node, codec, updated
from ganeti.platform import hosts, master_epoch, paths
from ganeti.replication.majority import majority
from ganeti.rpc import AddressRunner, RpcRunner
from ganeti.rpc.distribute import ConfigDistributor
from ganeti.rpc.voting import RoleNotWonError, Voting, failover_ballot
from ganeti.utils import fs
from ganeti.wire import calls, json

_STEPS = 50


class Broken(Exception):
    """A promise was broken."""


class Killed(BaseException):
    """The master which makes a call is killed at this moment."""


class Network:
    """Carries requests of one master to the nodes.

    :ivar kill_in: number of calls after which the master is killed; None for never.
    """

    def __init__(self, world: World, sender: SimNode) -> None:
        self.world = world
        self.sender = sender
        self.kill_in: int | None = None

    def perform(
        self,
        requests: Sequence[http_client.OutgoingRequest],
        on_outcome: http_client.OnOutcome | None = None,
        until: http_client.Until | None = None,
    ) -> list[http_client.Outcome]:
        """Carry out the requests one after the other, in a random order."""
        outcomes: list[http_client.Outcome | None] = [None] * len(requests)
        order = list(range(len(requests)))
        self.world.rng.shuffle(order)
        for index in order:
            outcome = self._one(requests[index])
            outcomes[index] = outcome
            if on_outcome is not None:
                on_outcome(index, outcome)
        return [outcome for outcome in outcomes if outcome is not None]

    def reset(self, ca_file: str | None = None) -> None:
        """Do nothing: there are no sessions."""

    def _one(self, request: http_client.OutgoingRequest) -> http_client.Outcome:
        if self.kill_in is not None:
            self.kill_in -= 1
            if self.kill_in < 0:
                raise Killed
        target = self.world.by_address[request.address]
        rng = self.world.rng
        lost = http_client.Failure(http_client.UNREACHABLE, "lost", sent=False)
        if not self.world.connected(self.sender, target) or rng.random() < self.world.loss:
            return lost
        before = _disk(target)
        headers = {
            name.lower(): value for name, _, value in (h.partition(": ") for h in request.headers)
        }
        answer = simserver.answer(
            target, AuthorisedRequest(request.procedure, request.body, "", "AA", headers, False)
        )
        self.world.note_write(target, before, headers)
        if target.copies.journal != before[1] and rng.random() < self.world.loss:
            self.world.tear(target, before[1])
            return http_client.Failure(http_client.FAILED, "the node lost its power", sent=True)
        if rng.random() < self.world.loss:
            return http_client.Failure(http_client.FAILED, "the answer was lost", sent=True)
        return http_client.Reply(
            answer.status,
            answer.body,
            answer.headers.get("X-Ganeti-Error", ""),
            answer.headers.get("X-Ganeti-Epoch", ""),
        )


@dataclasses.dataclass
class Master:
    """A running master: a store with an epoch on a node."""

    node: SimNode
    epoch: master_epoch.Epoch
    network: Network
    store: ConfigStore


class World:
    """A cluster, made from a seed."""

    def __init__(self, seed: int, say: Callable[[str], None]) -> None:
        self.rng = random.Random(seed)
        self.say = say
        self.fleet = Fleet("AA", seed=seed, clock=lambda: 0.0)
        count = self.rng.choice((3, 3, 5, 7))
        for number in range(1, count + 1):
            uuid = f"00000000-0000-4000-8000-{number:012d}"
            node = SimNode(self.fleet, uuid, node_name(number), f"127.0.9.{number}")
            self.fleet.nodes[uuid] = node
        self.nodes = list(self.fleet.nodes.values())
        self.by_address = {node.address: node for node in self.nodes}
        self.loss = self.rng.choice((0.0, 0.02, 0.1))
        self.sides: dict[str, int] = {}
        self.down: set[str] = set()
        self.acknowledged: set[str] = set()
        self.masters: list[Master] = []
        self.newest = master_epoch.NONE
        self._numbers = 0
        self._ticks = itertools.count(2)
        data = self._first_state()
        text = b"".join(ConfigText(data).render(data, ()))
        for node in self.nodes:
            node.copies.config = text
            node.keeps_journal = self.rng.random() < 0.8
            node.copies.ssconf = {
                ssconf_const.MASTER_NODE: f"{self.nodes[0].name}\n",
                ssconf_const.MASTER_CANDIDATES_CERTS: f"{self.nodes[0].uuid}=AA\n",
            }

    def _first_state(self) -> ConfigData:
        data = build_config(
            InitParams(
                cluster_name="cluster.example.com",
                enabled_disk_templates=("diskless",),
                enabled_hypervisors=("fake",),
            ),
            hosts.Hostname(self.nodes[0].name, self.nodes[0].address),
            hosts.Hostname("cluster.example.com", "127.0.9.250"),
            now=1.0,
        )
        (group,) = data.nodegroups.values()
        nodes = {
            node.uuid: Node(
                name=node.name,
                primary_ip=node.address,
                secondary_ip=node.address,
                master_candidate=True,
                offline=False,
                drained=False,
                group=group.uuid,
                master_capable=True,
                vm_capable=True,
                ndparams={},
                powered=True,
                uuid=node.uuid,
                serial_no=1,
            )
            for node in self.nodes
        }
        cluster = dataclasses.replace(
            data.cluster,
            master_node=self.nodes[0].uuid,
            candidate_pool_size=len(nodes),
            candidate_certs=dict.fromkeys(nodes, "AA"),
        )
        return dataclasses.replace(data, nodes=nodes, cluster=cluster)

    # -- network and promises -----------------------------------------------------------------

    def connected(self, one: SimNode, other: SimNode) -> bool:
        """Tell whether two nodes see each other; a node always sees itself."""
        if one.uuid in self.down or other.uuid in self.down:
            return False
        return one is other or self.sides.get(one.uuid, 0) == self.sides.get(other.uuid, 0)

    def note_write(
        self, node: SimNode, before: tuple[bytes, bytes], headers: dict[str, str]
    ) -> None:
        """Check that a node which changed its copy obeys no newer master than the caller."""
        if _disk(node) != before:
            self.check_file(node)
            epoch = master_epoch.parse(headers.get("x-ganeti-epoch", "0"))
            if epoch < node.copies.epoch:
                raise Broken(f"{node.name} took a change of epoch {epoch} after a newer promise")

    def check_file(self, node: SimNode) -> None:
        """Check that the file of a node is whole for programs which read nothing else."""
        try:
            members_of(node.copies.config, node.name)
        except errors.ConfigurationError as err:
            raise Broken(f"the file of {node.name} is not whole: {err}") from err

    def tear(self, node: SimNode, journal: bytes) -> None:
        """Let a node lose its power before the end of its journal is on its disk.

        :param journal: what was there before.
        """
        now = node.copies.journal
        if now.startswith(journal):
            node.copies.journal = now[: self.rng.randrange(len(journal), len(now))]
        else:
            # A new journal, whose name is not there yet.
            node.copies.journal = journal
        self.say(f"  {node.name} loses its power while it writes")
        self.down.add(node.uuid)
        self.masters = [one for one in self.masters if one.node is not node]

    def acknowledge(self, master: Master, tag: str) -> None:
        """Note that a change was acknowledged to a master."""
        newer = sum(node.copies.epoch > master.epoch for node in self.nodes)
        if newer >= majority(len(self.nodes)):
            raise Broken(f"{tag} was acknowledged to {master.node.name} after a newer promise")
        self.acknowledged.add(tag)

    def check(self, master: Master) -> None:
        """Check that a new master has every acknowledged change."""
        lost = self.acknowledged - set(_tags(master.store.snapshot()))
        if lost:
            raise Broken(f"master {master.node.name} of {master.epoch} lacks {sorted(lost)}")

    # -- steps --------------------------------------------------------------------------------

    def start_master(self, node: SimNode) -> Master | None:
        """Let a node become master as a failover does; None when it may not."""
        network = Network(self, node)
        if not node.copies.config:
            return None
        try:
            for _attempt in (1, 2):
                members = members_of(node.copies.config_text, node.name)
                runner = AddressRunner(network, 0)
                ballot = failover_ballot(node.name, members, ignore_offline=True)
                voting = Voting(runner, node.name, members, ballot)
                votes = voting.ask()
                if judge(ballot, votes.answers).won:
                    break
                if node.name not in votes.answers:
                    return None
                newer = newer_copies(node.name, votes.answers)
                if newer.config is None or not self._fetch(runner, node, newer.config, members):
                    return None
            else:
                return None
            won = voting.claim(votes)
        except (RoleNotWonError, errors.GenericError) as err:
            self.say(f"  refused: {err}")
            return None
        data = codec.from_dict(ConfigData, json.loads(node.copies.config_text))
        master = self._serve(node, won.epoch, network, data)
        try:
            with master.store.transaction() as change:
                change.cluster.update(updated(change.data.cluster, master_node=node.uuid))
        except errors.GenericError as err:
            self.say(f"  cannot take over: {err}")
            return None
        self.newest = max(self.newest, won.epoch)
        return master

    def _fetch(self, runner: AddressRunner, node: SimNode, source: str, members: Any) -> bool:
        address = members.nodes[source].primary_ip
        answer = runner.call_addresses(calls.CONFIG_READ, {source: address})[source]
        if answer.failure is not None:
            return False
        theirs = next(one for one in self.nodes if one.name == source)
        node.copies.config, node.copies.journal = answer.data.encode(), b""
        node.copies.config_epoch = theirs.copies.config_epoch
        return True

    def _serve(
        self, node: SimNode, epoch: master_epoch.Epoch, network: Network, data: ConfigData
    ) -> Master:
        state = [data]
        runner = RpcRunner(lambda: state[0], network, 0)
        runner.use_epoch(epoch, lambda _node, _known: None)

        def write(_path: str, pieces: Pieces) -> None:
            if node.uuid in self.down or node.copies.epoch > epoch:
                raise OSError("this node obeys another master")
            node.copies.config, node.copies.journal = b"".join(pieces), b""
            node.copies.config_epoch = epoch

        def change(_path: str, wanted: Change) -> bool:
            if node.uuid in self.down or node.copies.epoch > epoch:
                raise OSError("this node obeys another master")
            before = node.copies.journal
            if node.copies.change_config(wanted, journal=node.keeps_journal) is None:
                return False
            node.copies.config_epoch = epoch
            self.check_file(node)
            if node.copies.journal != before and self.rng.random() < self.loss:
                self.tear(node, before)
                raise Killed
            return True

        distributor = ConfigDistributor(runner)

        def distribute(message: Any) -> Any:
            state[0] = message.data
            return distributor(message)

        node.copies.config_epoch = epoch
        store = ConfigStore(
            LocalFile("", write, change, change_from_bytes=0),
            data,
            distribute=distribute,
            # The time of each state differs, as it does for real masters.
            now=lambda: float(next(self._ticks)),
        )
        return Master(node, epoch, network, store)

    def change(self, master: Master) -> bool:
        """Let a master change something; False when it is killed meanwhile."""
        self._numbers += 1
        tag = f"t{self._numbers}"
        if self.rng.random() < 0.25:
            master.network.kill_in = self.rng.randrange(0, 2 * len(self.nodes))
        try:
            with master.store.transaction() as change:
                cluster = change.data.cluster
                change.cluster.update(updated(cluster, tags=(*cluster.tags, tag)))
        except Killed:
            self.say(f"  {tag}: {master.node.name} is killed")
            return False
        except errors.GenericError as err:
            self.say(f"  {tag}: not acknowledged: {err}"[:200])
            return True
        finally:
            master.network.kill_in = None
        self.say(f"  {tag}: acknowledged to {master.node.name}")
        self.acknowledge(master, tag)
        return True

    def step(self) -> None:
        """Do something by chance."""
        what = self.rng.choices(
            ("change", "failover", "split", "join", "down", "up", "fold", "version"),
            (50, 15, 10, 12, 5, 8, 8, 2),
        )[0]
        if what == "change" and self.masters:
            master = self.rng.choice(self.masters)
            self.say(f"change by {master.node.name}, epoch {master.epoch.number}")
            if not self.change(master):
                self.masters = [one for one in self.masters if one is not master]
        elif what == "failover":
            node = self.rng.choice(self.nodes)
            self.say(f"{node.name} asks for the role")
            if node.uuid not in self.down:
                made = self.start_master(node)
                if made is not None:
                    self.say(f"  {node.name} is master by epoch {made.epoch.number}")
                    self.check(made)
                    # Others may be paused, and go on later.
                    self.masters = [one for one in self.masters if one.node is not node][-2:]
                    self.masters.append(made)
        elif what == "split":
            self.sides = {node.uuid: self.rng.randrange(2) for node in self.nodes}
            self.say(f"the network splits: {[n.name for n in self.nodes if self.sides[n.uuid]]}")
        elif what == "join":
            self.sides = {}
            self.say("the network is whole")
        elif what == "down":
            node = self.rng.choice(self.nodes)
            self.down.add(node.uuid)
            self.masters = [one for one in self.masters if one.node is not node]
            self.say(f"{node.name} loses its power")
        elif what == "up" and self.down:
            uuid = self.rng.choice(sorted(self.down))
            self.down.discard(uuid)
            self.say(f"{self.fleet.nodes[uuid].name} starts again")
        elif what in ("fold", "version") and len(self.down) < len(self.nodes):
            node = self.rng.choice([node for node in self.nodes if node.uuid not in self.down])
            self._fold(node, interrupted=what == "fold" and self.rng.random() < 0.4)
            if what == "version":
                # A node daemon folds in before it is replaced by one of another version.
                node.keeps_journal = not node.keeps_journal
                self.say(f"{node.name} keeps {'a' if node.keeps_journal else 'no'} journal")

    def _fold(self, node: SimNode, *, interrupted: bool) -> None:
        before = node.copies.config_text
        node.copies.fold(interrupted=interrupted)
        if node.copies.config_text != before:
            raise Broken(f"folding in changed the configuration of {node.name}")
        self.check_file(node)
        self.say(f"{node.name} folds in its journal{', and stops there' if interrupted else ''}")
        if interrupted:
            self.down.add(node.uuid)
            self.masters = [one for one in self.masters if one.node is not node]

    def heal(self) -> None:
        """Make everything well, and check that a master has all that was acknowledged."""
        self.sides, self.loss = {}, 0.0
        self.down.clear()
        for node in self.nodes:
            made = self.start_master(node)
            if made is not None:
                self.check(made)
                self.say(f"at the end {node.name} is master and has everything")
                return
        raise Broken("no node can become master though all of them are well")


def _disk(node: SimNode) -> tuple[bytes, bytes]:
    return node.copies.config, node.copies.journal


def _tags(data: ConfigData) -> tuple[str, ...]:
    return data.cluster.tags


def run(seed: int, say: Callable[[str], None] = lambda _line: None) -> str | None:
    """Run a seed; return the promise which was broken, or None."""
    with tempfile.TemporaryDirectory(prefix="gnt-explore-") as root:
        # The sender of a file looks for the owner of this directory.
        here = paths.Paths(root)
        fs.make_dirs(here.data_dir)
        with paths.override(here):
            world = World(seed, say)
            try:
                for _ in range(_STEPS):
                    world.step()
                world.heal()
            except Broken as err:
                return str(err)
    return None


def main(argv: Sequence[str] | None = None) -> int:
    """Run seeds; the exit code is 1 when a promise was broken."""
    parser = argparse.ArgumentParser(prog="explore", description="Explore simulated clusters.")
    parser.add_argument("--seed", type=int, metavar="N", help="replay a seed, with its steps")
    parser.add_argument(
        "--seeds", default="0-99", metavar="A-B", help="seeds to run (default: %(default)s)"
    )
    options = parser.parse_args(argv)
    if options.seed is not None:
        broken = run(options.seed, print)
        print(broken or "every promise holds")
        return int(broken is not None)
    first, _, last = options.seeds.partition("-")
    failed = 0
    for seed in range(int(first), int(last or first) + 1):
        broken = run(seed)
        if broken is not None:
            failed += 1
            print(f"seed {seed}: {broken}", flush=True)
    print(f"{int(last or first) - int(first) + 1} seeds, {failed} broke a promise")
    return int(failed > 0)


if __name__ == "__main__":
    # Only here, because a test calls the function beside other tests.
    logging.disable(logging.CRITICAL)
    sys.exit(main())
