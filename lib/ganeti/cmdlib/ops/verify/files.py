"""Verification of files: those which all nodes share, the configuration, and the ssconf files.

The verification of a node group calls this module. The master may write a file during the
verification, so nodes may have different versions for a moment. Therefore the nodes are asked again
about files which differ before a problem is reported.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ganeti.cmdlib.ops.cluster.common_files import common_files
from ganeti.config import ssconf
from ganeti.constants import node_verify as nv
from ganeti.platform import paths
from ganeti.utils.text import comma_join
from ganeti.wire.calls import NODE_VERIFY

if TYPE_CHECKING:
    from ganeti.cmdlib.ops.verify.findings import Findings
    from ganeti.config import Config
    from ganeti.objects import ConfigData, Node
    from ganeti.rpc import RpcRunner

# So often nodes are asked again about ssconf files which differ from the configuration.
_ROUNDS = 3

Sums = dict[str, dict[str, str]]
"""UUID of a node -> path -> checksum; a file that is missing on the node is missing here, too."""


def _shared(config: Config) -> list[str]:
    here = paths.current()
    found = common_files(etc_hosts=config.cluster().modify_etc_hosts)
    return [here.to_virtual(path) for path in found]


def _configuration() -> str:
    here = paths.current()
    return here.to_virtual(here.cluster_conf_file)


#: A state of the configuration, where its files are, and its facts.
_last: tuple[ConfigData, paths.Paths, dict[str, str]] | None = None


def _facts(config: Config) -> Mapping[str, str]:
    """Return the path and checksum of each ssconf file, computed from the present configuration."""
    # The groups of a large cluster would compute the same, with the names of all instances.
    global _last
    data = config.snapshot()
    last = _last
    if last is not None and last[0] is data and last[1] is paths.current():
        return last[2]
    here = paths.current()
    found = {
        here.to_virtual(here.ssconf_file(key)): hashlib.sha1(
            text.encode("utf-8"), usedforsecurity=False
        ).hexdigest()
        for key, text in ssconf.values(data).items()
    }
    _last = data, here, found
    return found


def listed(config: Config) -> list[str]:
    """Return the paths of the files whose checksums the nodes are asked for."""
    return [*_shared(config), _configuration(), *_facts(config)]


def journal(findings: Findings, node: Node, answer: Mapping[str, Any]) -> None:
    """Check what a node says of the journal of its configuration."""
    problem, set_aside = answer.get(nv.CONFIG_JOURNAL) or ("", [])
    if problem:
        findings.report("ENODEFILECHECK", node.name, problem)
    if set_aside:
        findings.report(
            "ENODEFILECHECK",
            node.name,
            f"has changes of the configuration which were set aside: {comma_join(set_aside)}."
            " cfgshell(8) explains them; remove these files when nobody needs them",
            warning=True,
        )


class FileCheck:
    """Compares the files of the nodes of a group by their checksums.

    :param nodes: the nodes which were asked.
    :param answers: UUID of a node -> its answer to ``node_verify``.
    """

    def __init__(
        self,
        config: Config,
        rpc: RpcRunner,
        findings: Findings,
        nodes: Sequence[Node],
        answers: Mapping[str, Mapping[str, Any]],
    ) -> None:
        self._config = config
        self._rpc = rpc
        self._findings = findings
        self._sums: Sums = {}
        for node in nodes:
            if node.uuid not in answers:
                continue
            reported = answers[node.uuid].get(nv.FILELIST)
            if isinstance(reported, dict):
                self._sums[node.uuid] = reported
            else:
                findings.report(
                    "ENODEFILECHECK", node.name, "did not report the checksums of its files"
                )
        self._nodes = [node for node in nodes if node.uuid in self._sums]

    def run(self) -> None:
        """Compare all files and report what differs."""
        for path in _shared(self._config):
            self._compare(path, self._nodes)
        configuration = _configuration()
        candidates = [node for node in self._nodes if node.master_candidate]
        if len(self._variants(configuration, candidates)) > 1:
            self._ask_again(candidates, [configuration])
        self._compare(configuration, candidates)
        others = [node for node in self._nodes if not node.master_candidate]
        kept = [node.name for node in others if configuration in self._sums[node.uuid]]
        self._findings.check(
            bool(kept),
            "ECLUSTERFILECHECK",
            "",
            f"file {configuration}, which holds secrets, exists on {comma_join(kept)}, although"
            " only master candidates need it. Remove it with 'gnt-cluster redist-conf'.",
        )
        self._compare_facts()

    def _ask_again(self, nodes: Sequence[Node], files: Collection[str]) -> None:
        answers = self._rpc.call_many(
            NODE_VERIFY,
            [node.uuid for node in nodes],
            checks={nv.FILELIST: sorted(files)},
            cluster_name=self._config.cluster_name,
            all_hvparams={},
        )
        for uuid, answer in answers.items():
            if answer.failure is None:
                unchanged = {
                    path: checksum
                    for path, checksum in self._sums[uuid].items()
                    if path not in files
                }
                self._sums[uuid] = {**unchanged, **answer.data[nv.FILELIST]}

    def _variants(self, path: str, nodes: Sequence[Node]) -> dict[str, list[str]]:
        """Checksum -> names of the nodes which have the file with this checksum."""
        found: dict[str, list[str]] = {}
        for node in nodes:
            checksum = self._sums[node.uuid].get(path)
            if checksum is not None:
                found.setdefault(checksum, []).append(node.name)
        return found

    def _compare(self, path: str, nodes: Sequence[Node]) -> None:
        """Check that all nodes have a file, in the same version."""
        missing = [node.name for node in nodes if path not in self._sums[node.uuid]]
        self._findings.check(
            bool(missing),
            "ECLUSTERFILECHECK",
            "",
            f"file {path} is missing on {comma_join(missing)}",
        )
        variants = self._variants(path, nodes)
        shown = "; ".join(
            f"version {number} on {comma_join(names)}"
            for number, names in enumerate(variants.values(), 1)
        )
        self._findings.check(
            len(variants) > 1,
            "ECLUSTERFILECHECK",
            "",
            f"file {path} differs between nodes: {shown}",
        )

    def _wrong_facts(self) -> dict[str, list[Node]]:
        wanted = _facts(self._config)
        wrong = {
            path: [node for node in self._nodes if self._sums[node.uuid].get(path) != checksum]
            for path, checksum in wanted.items()
        }
        return {path: nodes for path, nodes in wrong.items() if nodes}

    def _compare_facts(self) -> None:
        """Check that the ssconf files of the nodes match the configuration."""
        wrong = self._wrong_facts()
        for _ in range(_ROUNDS):
            if not wrong:
                return
            # In a large cluster most nodes get the names of instances some seconds later.
            self._config.inform_others()
            nodes = {node.uuid: node for found in wrong.values() for node in found}
            self._ask_again(list(nodes.values()), set(wrong))
            wrong = self._wrong_facts()
        for path, found in wrong.items():
            self._findings.report(
                "ECLUSTERFILECHECK",
                "",
                f"file {path} is missing or old on {comma_join(node.name for node in found)}."
                " Write it again with 'gnt-cluster redist-conf'.",
            )
