"""The command ``gnt-cluster renumber``: other addresses for all nodes, also for the master."""

from __future__ import annotations

from ganeti import TYPE_CHECKING, errors
from ganeti.cli import failures, jobs, terminal
from ganeti.cli import options as opt
from ganeti.cli.command import Argument, Command, Values

if TYPE_CHECKING:
    from ganeti.bootstrap.renumber import Given

_QUESTION = "The master daemon will be stopped, and started with these addresses. Continue?"


def renumber(values: Values, arguments: list[str]) -> int:
    """Give the nodes and the cluster other addresses (``renumber``)."""
    from ganeti.bootstrap import renumber as work

    wanted = work.plan(given_addresses(arguments), values.cluster_address)
    if not wanted.lines():
        terminal.out("All nodes and the cluster have these addresses already")
        return failures.EXIT_SUCCESS
    for line in wanted.lines():
        terminal.out(line)
    for name, why in work.unreachable_nodes(wanted).items():
        terminal.err(f"Warning: node {name} does not answer at its new address: {why}")
    replicating = wanted.replicating()
    if replicating:
        terminal.err(
            "Warning: the replicas of these instances are connected over former addresses until"
            f" the next start of the instance: {', '.join(replicating)}"
        )
    if values.dry_run:
        return failures.EXIT_SUCCESS
    if not values.force and not terminal.confirm(_QUESTION):
        terminal.err("Nothing was changed. Use -f to change the addresses without a question.")
        return failures.EXIT_CONFIRMATION
    for warning in work.renumber(wanted, terminal.out):
        terminal.err(f"Warning: {warning}")
    _inform_nodes(values)
    return failures.EXIT_SUCCESS


def _inform_nodes(values: Values) -> None:
    """Send the configuration and the common files to all nodes; a failure is a warning."""
    from ganeti.opcodes.cluster import OpClusterRedistConf

    try:
        jobs.run_opcode(OpClusterRedistConf(), values)
    except errors.GenericError as err:
        terminal.err(
            f"Warning: the nodes may not have all files with the new addresses: {err}. Run"
            " 'gnt-cluster redist-conf'."
        )


def given_addresses(arguments: list[str]) -> dict[str, Given]:
    """Read arguments such as ``node1.example.com=192.0.2.11,198.51.100.11``.

    :returns: primary and secondary address by node; what is missing is None.
    :raises OpPrereqError: an argument has another form, or a node is given twice.
    """
    from ganeti.bootstrap.renumber import Given
    from ganeti.utils import net

    found: dict[str, Given] = {}
    for argument in arguments:
        name, equals, text = argument.partition("=")
        addresses = text.split(",")
        if not name or not equals or len(addresses) > 2 or not any(addresses):
            raise errors.OpPrereqError(
                f"'{argument}' does not have the form NODE=PRIMARY or NODE=PRIMARY,SECONDARY",
                errors.ECODE_INVAL,
            )
        for address in filter(None, addresses):
            if not net.is_ip(address):
                raise errors.OpPrereqError(
                    f"{argument}: '{address}' is not an IP address", errors.ECODE_INVAL
                )
        if name in found:
            raise errors.OpPrereqError(f"node {name} is given twice", errors.ECODE_INVAL)
        found[name] = Given(*(address or None for address in addresses))
    return found


RENUMBER = Command(
    "renumber",
    renumber,
    [Argument("unknown")],
    [
        opt.text(
            "--cluster-address",
            dest="cluster_address",
            metavar="ADDRESS",
            help="address of the cluster; by default the one to which its name resolves",
        ),
        opt.FORCE,
        opt.flag("--dry-run", dest="dry_run", help="only show what would change"),
    ],
    "Give the nodes and the cluster other addresses, also when no master daemon runs",
    usage="[<options>] [<node>=<primary>[,<secondary>]...]",
)
