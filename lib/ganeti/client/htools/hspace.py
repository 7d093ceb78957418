"""The program ``hspace``: how many more instances fit a cluster."""

from __future__ import annotations

from collections.abc import Iterable

from ganeti import TYPE_CHECKING, errors
from ganeti.client.htools import loading
from ganeti.client.htools import program as prog
from ganeti.client.htools.options import Values
from ganeti.htools import capacity, figures, formats, score
from ganeti.htools.capacity import Filled, Plan
from ganeti.htools.cluster import Cluster
from ganeti.htools.figures import Figures
from ganeti.htools.instance import NO_NODE, Instance
from ganeti.htools.policy import Spec

if TYPE_CHECKING:
    from typing import Any

OPTIONS = (
    "print-nodes", "text-data", "disk-template", "spindle-use", "simulate", "master", "luxi",
    "ialloc-src", "verbose", "quiet", "independent-groups", "accept-existing-errors", "offline",
    "no-capacity-checks", "machine-readable", "max-cpu", "max-length", "min-disk",
    "standard-alloc", "tiered-alloc", "save", "static-kvm-node-memory", "group",
    "what-if", "output",
)  # fmt: skip

_PREFIX = "HTS"
_SPEC_MIN, _SPEC_MAX = 3, 4


def execute(values: Values) -> int:
    """Fill the cluster twice: with smaller and smaller instances, and with standard ones."""
    standard = size("standard", values.standard_alloc)
    largest = size("tiered", values.tiered_alloc)
    cluster = loading.load(values, one_group=True)
    run = Run(values, cluster, standard, largest)
    if values.output != "json":
        return run.print()
    from ganeti.wire import json

    prog.out(json.dumps(run.as_dict(*run.fill())))
    return 0


def size(what: str, text: str | None) -> Spec | None:
    """Read a size: ``disk,memory,cpus[,spindles]``.

    :raises Failure: it is not one.
    """
    if text is None:
        return None
    fields = text.split(",")
    if not _SPEC_MIN <= len(fields) <= _SPEC_MAX:
        raise prog.Failure(
            f"Invalid {what} specification: '{text}', expected disk,ram,cpu[,spindles]"
        )
    from ganeti.htools.loading import simulation

    try:
        disk = simulation.amount(f"{what} specs disk", fields[0])
        memory = simulation.amount(f"{what} specs memory", fields[1])
    except errors.ParseError as failure:
        raise prog.Failure(str(failure)) from failure
    for field in fields[2:]:
        if not field.isdecimal():
            raise prog.Failure(f"{what} specs: cannot parse string '{field}' of '{text}'")
    spindles = int(fields[3]) if len(fields) > _SPEC_MIN else 1
    return Spec(memory, int(fields[2]), disk, 1, 1, spindles)


class Run:
    """One run of the program.

    :param standard: the standard size; None for that of the policy.
    :param largest: the size with which tiers begin; None for those of the policy.
    """

    def __init__(
        self, values: Values, cluster: Cluster, standard: Spec | None, largest: Spec | None
    ) -> None:
        self.values = values
        self.cluster = cluster
        policy = cluster.policy
        self.template: str = values.disk_template or policy.templates[0]
        self.standard = standard or policy.standard
        self.largest = [largest or one.largest for one in policy.ranges]
        self.limit = None if values.max_length < 0 else int(values.max_length)
        self.exclusive = any(node.exclusive_storage for node in cluster.nodes)

    # -- filling ----------------------------------------------------------------------------------

    def plan(self) -> Plan:
        """Return which places may be filled."""
        options = capacity.Options(
            independent=self.values.independent_groups,
            accept_existing=self.values.accept_existing,
            capacity_checks=not self.values.no_capacity_checks,
        )
        return capacity.plan(self.cluster, self.template, options)

    def instance(self, spec: Spec) -> Instance:
        """Make an instance of a size."""
        return capacity.new_instance(
            spec,
            self.template,
            self.cluster,
            spindle_use=1 if self.values.spindle_use is None else self.values.spindle_use,
        )

    def fill_tiers(self, plan: Plan) -> Filled:
        """Fill with smaller and smaller instances."""
        instances = [self.instance(spec) for spec in self.largest]
        try:
            return capacity.tiered(self.cluster, plan, instances, limit=self.limit)
        except errors.GenericError as failure:
            raise prog.Failure(f"failure during allocation: {failure}") from failure

    def fill_standard(self, plan: Plan) -> Filled:
        """Fill with instances of the standard size."""
        instance = self.instance(self.standard)
        try:
            return capacity.fill(self.cluster, plan, instance, limit=self.limit)
        except errors.GenericError as failure:
            raise prog.Failure(f"failure during allocation: {failure}") from failure

    # -- printing ---------------------------------------------------------------------------------

    def print(self) -> int:
        """Print the results, for programs or for people."""
        values, machine = self.values, self.values.machine_readable
        prog.print_nodes(values, self.cluster, "Initial cluster")
        if values.verbose > 2:
            from ganeti.htools import tables

            found = score.details(self.cluster.nodes)
            total = formats.fixed(score.total(found), 8)
            prog.err(f"Initial coefficients: overall {total}")
            prog.err(tables.components(found if self.cluster.nodes else ()))
        initial = figures.figures(self.cluster)
        if machine:
            _print_keys("CLUSTER", _cluster_keys(self.cluster, initial))
            _print_keys("INI", _keys(initial))
        else:
            self._print_cluster(initial)
        plan = self.plan()
        if values.verbose > 3:
            self._print_plan(plan)
        tiers = self.fill_tiers(plan)
        after = figures.figures(tiers.cluster)
        self._report("Tiered allocation", "tiered", tiers)
        if machine:
            _print_keys("TSPEC_INI", self._spec_keys(self.largest[0]))
            _print_keys("TRL", _keys(after))
            _print_keys("TSPEC", [("", _tier_text(tiers))])
            _print_keys("KM", _key_metrics(initial, after))
        else:
            prog.out("Tiered (initial size) instance spec is:")
            self._print_spec(self.largest[0])
            prog.out("Tiered allocation results:")
            self._print_tiers(tiers)
            self._print_results(tiers, initial, after)
        standard = self.fill_standard(plan)
        final = figures.figures(standard.cluster)
        self._report("Standard allocation", "standard", standard)
        if not machine:
            prog.out("Standard (fixed-size) instance spec is:")
            self._print_spec(self.standard)
            prog.out("Normal (fixed-size) allocation results:")
            prog.out(f"  - {len(standard.placed):3d} instances allocated")
            self._print_results(standard, initial, final)
            return 0
        _print_keys("SPEC", self._spec_keys(self.standard))
        everything = len(standard.cluster.instances)
        if everything != final.instances:
            # The published variables cannot say that some instances do not exist yet.
            raise prog.Failure(
                f"internal inconsistency, allocated ({everything}) != counted ({final.instances})\n"
            )
        _print_keys("FIN", _keys(final))
        _print_keys("ALLOC", _allocation_keys(standard, len(self.cluster.instances)))
        _print_keys("OK", [("", "1")])
        return 0

    def _report(self, what: str, suffix: str, filled: Filled) -> None:
        """Print and save what the user asked for."""
        values = self.values
        if values.verbose > 1:
            lines = self._map(filled)
            prog.err("\n".join([f"{what} map", *lines]))
        prog.print_nodes(values, filled.cluster, what)
        if values.save is not None:
            prog.save(f"{values.save}.{suffix}", filled.cluster, f"after {what.lower()}")

    def _map(self, filled: Filled) -> list[str]:
        nodes = filled.cluster.nodes
        rows = [
            [
                one.name,
                nodes[one.primary].alias,
                "" if one.secondary == NO_NODE else nodes[one.secondary].alias,
                str(one.memory),
                str(one.disk),
                str(one.vcpus),
                str(one.spindles) if self.exclusive else "",
            ]
            for one in filled.placed
        ]
        numeric = [False, False, False, True, True, True, True]
        return [f" {line}" for line in formats.table(rows, numeric)]

    def _print_plan(self, plan: Plan) -> None:
        if plan.bad_nodes:
            prog.err(f"Bad nodes: {formats.texts([node.name for node in plan.bad_nodes])}")
        bad_groups = capacity.bad_groups(self.cluster, plan.options)
        if bad_groups:
            names = [self.cluster.groups[index].name for index in bad_groups]
            prog.err(f"Bad groups: {formats.texts(names)}")
        if capacity.required_nodes(self.template) == 1:
            numbers = ",".join(str(first) for first, _ in plan.places)
            prog.err(f"Allocatable nodes: Left [{numbers}]")
            return
        seconds: dict[int, list[int]] = {}
        for first, second in plan.places:
            seconds.setdefault(first, []).append(second)
        pairs = ",".join(
            f"({first},[{','.join(str(one) for one in some)}])" for first, some in seconds.items()
        )
        prog.err(f"Allocatable nodes: Right [{pairs}]")

    def _print_cluster(self, found: Figures) -> None:
        spindles = f", SPN {found.total_spindles}" if self.exclusive else ""
        prog.out(
            f"The cluster has {len(self.cluster.nodes)} nodes and the following resources:\n"
            f"  MEM {formats.fixed(found.total_memory, 0)},"
            f" DSK {formats.fixed(found.total_disk, 0)},"
            f" CPU {formats.fixed(found.total_cpus, 0)}, VCPU {found.max_vcpus}{spindles}."
        )
        count = found.instances
        prog.out(f"There are {count or 'no'} initial instances on the cluster.")

    def _size_text(self, memory: int, disk: int, cpus: int, spindles: int) -> str:
        more = f", SPN {spindles}" if self.exclusive else ""
        return f"MEM {memory}, DSK {disk}, CPU {cpus}{more}"

    def _print_spec(self, spec: Spec) -> None:
        size = self._size_text(spec.memory, spec.disk_size, spec.cpus, spec.spindle_use)
        prog.out(f"  {size}, using disk template '{self.template}'.")

    def _print_tiers(self, filled: Filled) -> None:
        for one, count in filled.sizes():
            size = self._size_text(one.memory, one.disk, one.vcpus, one.spindles or 0)
            prog.out(f"  - {count:3d} instances of spec {size}")
        if not filled.placed:
            prog.out("  - no instances allocated")

    def _print_results(self, filled: Filled, initial: Figures, final: Figures) -> None:
        prog.out(f"  - most likely failure reason: {filled.reasons()[0][0].value}")
        prog.out(f"  - initial cluster score: {formats.fixed(initial.score, 8)}")
        prog.out(f"  -   final cluster score: {formats.fixed(final.score, 8)}")
        width = len("spindles") if self.exclusive else len("memory")
        shares = figures.shares(final)
        names = {"memory": "MEM_EFF", "disk": "DSK_EFF", "vcpu": "CPU_EFF"}
        if self.exclusive:
            names["spindles"] = "SPN_EFF"
        for name, key in names.items():
            percent = formats.fixed(100 * shares[key], 2)
            prog.out(f"  - {name:>{width}} usage efficiency: {percent:>5}%")

    def _spec_keys(self, spec: Spec) -> list[tuple[str, str]]:
        return [
            ("MEM", str(spec.memory)),
            ("DSK", str(spec.disk_size)),
            ("CPU", str(spec.cpus)),
            ("SPN", str(spec.spindle_use)),
            ("RQN", str(capacity.required_nodes(self.template))),
            ("DISK_TEMPLATE", self.template),
        ]

    # -- JSON -------------------------------------------------------------------------------------

    def fill(self) -> tuple[Filled, Filled]:
        """Fill the cluster with smaller and smaller instances, and with standard ones.

        :raises Failure: there are no places to try.
        """
        plan = self.plan()
        return self.fill_tiers(plan), self.fill_standard(plan)

    def as_dict(self, tiers: Filled, standard: Filled) -> dict[str, Any]:
        """Return everything for programs."""
        from ganeti.client.htools import reports

        return {
            **reports.what_if(self.values.changes),
            "disk_template": self.template,
            "initial": reports.figures(figures.figures(self.cluster)),
            "tiered": {"spec": reports.spec(self.largest[0]), **reports.filled(tiers)},
            "standard": {"spec": reports.spec(self.standard), **reports.filled(standard)},
        }


# -- shell variables ------------------------------------------------------------------------------


def _print_keys(prefix: str, found: Iterable[tuple[str, str]]) -> None:
    for key, value in found:
        name = "_".join(filter(None, (_PREFIX, prefix, key)))
        prog.out(f"{name}={_quoted(value)}")


def _quoted(text: str) -> str:
    """Quote a value for a shell, where it needs it."""
    if all(one.isalnum() or one in "._" for one in text):
        return text
    return "'" + text.replace("'", "'\\''") + "'"


def _cluster_keys(cluster: Cluster, found: Figures) -> list[tuple[str, str]]:
    return [
        ("MEM", formats.fixed(found.total_memory, 0)),
        ("DSK", formats.fixed(found.total_disk, 0)),
        ("CPU", formats.fixed(found.total_cpus, 0)),
        ("VCPU", str(found.max_vcpus)),
        ("SPN", str(found.total_spindles)),
        ("NODES", str(len(cluster.nodes))),
    ]


def _keys(found: Figures) -> list[tuple[str, str]]:
    shares = {key: formats.fixed(value, 8) for key, value in figures.shares(found).items()}
    return [
        ("SCORE", formats.fixed(found.score, 8)),
        ("INST_CNT", str(found.instances)),
        ("MEM_FREE", str(found.free_memory)),
        ("MEM_AVAIL", str(found.available_memory)),
        ("MEM_RESVD", str(found.free_memory - found.available_memory)),
        ("MEM_INST", str(found.instance_memory)),
        ("MEM_OVERHEAD", str(found.unknown_memory + found.own_memory)),
        ("MEM_EFF", shares["MEM_EFF"]),
        ("DSK_FREE", str(found.free_disk)),
        ("DSK_AVAIL", str(found.available_disk)),
        ("DSK_RESVD", str(found.free_disk - found.available_disk)),
        ("DSK_INST", str(found.instance_disk)),
        ("DSK_EFF", shares["DSK_EFF"]),
        ("SPN_FREE", str(found.free_spindles)),
        ("SPN_INST", str(found.instance_spindles)),
        ("SPN_EFF", shares["SPN_EFF"]),
        ("CPU_INST", str(found.vcpus)),
        ("CPU_EFF", shares["CPU_EFF"]),
        ("MNODE_MEM_AVAIL", str(found.largest_memory)),
        ("MNODE_DSK_AVAIL", str(found.largest_disk)),
    ]


def _tier_text(filled: Filled) -> str:
    return " ".join(
        f"{one.memory},{one.disk},{one.vcpus},{one.spindles}={count}"
        for one, count in filled.sizes()
    )


def _key_metrics(initial: Figures, final: Figures) -> list[tuple[str, str]]:
    number = formats.number

    def keys(name: str, cpus: int, real: float, memory: int, disk: int, spindles: int) -> Any:
        return [
            (f"{name}_CPU", str(cpus)),
            (f"{name}_NPU", number(real)),
            (f"{name}_MEM", str(memory)),
            (f"{name}_DSK", str(disk)),
            (f"{name}_SPN", str(spindles)),
        ]

    return [
        *keys(
            "USED", initial.vcpus, initial.real_cpus, initial.instance_memory,
            initial.instance_disk, initial.instance_spindles,
        ),
        *keys(
            "POOL",
            final.vcpus - initial.vcpus,
            final.real_cpus - initial.real_cpus,
            final.instance_memory - initial.instance_memory,
            final.instance_disk - initial.instance_disk,
            final.instance_spindles - initial.instance_spindles,
        ),
        *keys(
            "UNAV",
            final.max_vcpus - final.vcpus,
            final.total_cpus - final.real_cpus,
            int(final.total_memory) - final.instance_memory,
            int(final.total_disk) - final.instance_disk,
            final.total_spindles - final.instance_spindles,
        ),
    ]  # fmt: skip


def _allocation_keys(filled: Filled, before: int) -> list[tuple[str, str]]:
    reasons = filled.reasons()
    after = before + len(filled.placed)
    usage = before / after if after else float("nan")
    return [
        ("USAGE", formats.fixed(usage, 8)),
        ("INSTANCES", str(len(filled.placed))),
        ("FAIL_REASON", reasons[0][0].value.upper()),
        *((f"{fail.value.upper()}_CNT", str(count)) for fail, count in reasons),
    ]


PROGRAM = prog.Program("hspace", OPTIONS, execute)


def run() -> int:
    """Run the program."""
    return prog.run_and_end(PROGRAM)
