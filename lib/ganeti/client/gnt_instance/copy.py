"""The command ``gnt-instance copy``: make a new instance from another one."""

from __future__ import annotations

from ganeti.cli import failures, instance_creation, instance_options, jobs
from ganeti.cli import options as opt
from ganeti.cli.command import Argument, Command, Values


def copy(values: Values, arguments: list[str]) -> int:
    """Make a new instance with the parameters and the content of another one (``copy``)."""
    from ganeti.opcodes.instance import OpInstanceCopy

    source, name = arguments
    opcode = OpInstanceCopy(
        instance_name=source,
        new_name=name,
        snapshot_name=values.snapshot,
        disk_template=values.disk_template,
        disks=instance_options.copied_disks(values),
        nics=instance_options.copied_nics(values),
        compress=values.compress,
        start=values.start,
        explain=values.explain or None,
        **instance_creation.common_fields(values),
    )
    # Mistakes are found before the master is asked for names.
    opcode.validate()
    client = jobs.connect()
    opcode.new_name = instance_creation.full_name(values, name, client, source)
    jobs.run_opcode(opcode, values, client=client)
    return failures.EXIT_SUCCESS


COPY = Command(
    "copy",
    copy,
    [Argument("instance", 1, 1), Argument("host", 1, 1)],
    [
        opt.text(
            "--snapshot",
            metavar="NAME",
            help="copy the content of this snapshot; by default that of the instance as it is now,"
            " which must be stopped",
        ),
        instance_creation.DISK_TEMPLATE,
        opt.keyed_values(
            "--disk",
            dest="disks",
            metavar="N:KEY=VALUE[,...]",
            help="what is different for disk N of the copy: size, vg, ...; may be given several"
            " times",
        ),
        opt.keyed_values(
            "--net",
            dest="nics",
            metavar="N:KEY=VALUE[,...]",
            help="what is different for network interface N of the copy, such as ip or network",
        ),
        opt.new_nodes("primary node, and secondary node for mirrored disks"),
        opt.IALLOCATOR,
        opt.NODE_GROUP,
        opt.FILE_STORAGE_DIR,
        opt.FILE_DRIVER,
        opt.NO_WAIT_FOR_SYNC,
        *instance_creation.NAME_OPTIONS,
        opt.NO_CONFLICTS_CHECK,
        opt.IGNORE_IPOLICY,
        opt.COMPRESS,
        opt.flag("--start", help="start the copy when it is complete"),
        opt.flag(
            "--explain",
            help="show for each node why the allocator chose it or not; with --dry-run, nothing is"
            " copied",
        ),
        opt.DRY_RUN,
        opt.PRIORITY,
        *opt.SUBMIT_OPTIONS,
    ],
    "Make a new instance with the parameters and the disks of another one",
    usage="[<options>] <instance> <new instance>",
)
