"""The command ``gnt-instance batch-create``: create the instances which a file describes."""

from __future__ import annotations

from ganeti import TYPE_CHECKING, errors
from ganeti.cli import failures, jobs, terminal
from ganeti.cli import options as opt
from ganeti.cli.command import Argument, Command, Values
from ganeti.constants import instance as const

if TYPE_CHECKING:
    from typing import Any

    from ganeti.opcodes.instance import OpInstanceCreate


def read(path: str) -> list[OpInstanceCreate]:
    """Read the instances which a file describes, a JSON list of objects.

    The keys are the parameters of the opcode which creates an instance. ``name`` is accepted for
    ``instance_name``; ``mode``, ``nics`` and ``disks`` are optional.

    :raises OpPrereqError: the file cannot be read, is not such a list, or an object is wrong.
    """
    from ganeti.opcodes.instance import OpInstanceCreate
    from ganeti.utils import fs
    from ganeti.wire import json

    try:
        described = json.loads(fs.read_edited_file(path))
    except OSError as err:
        raise errors.OpPrereqError(
            f"cannot read {path}: {err.strerror}", errors.ECODE_ENVIRON
        ) from err
    except errors.ParseError as err:
        raise errors.OpPrereqError(f"{path}: {err}", errors.ECODE_INVAL) from err
    if not isinstance(described, list) or not described:
        raise errors.OpPrereqError(f"{path} is not a list of instances", errors.ECODE_INVAL)
    found = []
    for index, item in enumerate(described):
        if not isinstance(item, dict):
            raise errors.OpPrereqError(
                f"{path}: instance {index} is not a dictionary", errors.ECODE_INVAL
            )
        fields: dict[str, Any] = {"mode": const.CREATE, "disks": [], "nics": [{}], **item}
        if "name" in fields:
            fields.setdefault("instance_name", fields.pop("name"))
        unknown = sorted(set(fields) - set(OpInstanceCreate.PARAMS))
        if unknown:
            raise errors.OpPrereqError(
                f"{path}: instance {index} has unknown keys {', '.join(unknown)}",
                errors.ECODE_INVAL,
            )
        try:
            fields["disks"] = _sizes(fields["disks"])
            op = OpInstanceCreate(**fields)
            op.validate()
        except errors.OpPrereqError as err:
            raise errors.OpPrereqError(
                f"{path}: instance {index}: {err}", errors.ECODE_INVAL
            ) from err
        found.append(op)
    return found


def _sizes(disks: Any) -> Any:
    """Return disks with their sizes in MiB; other values are refused by the check of the opcode."""
    from ganeti.cli import instance_options

    if not isinstance(disks, list):
        return disks
    return [
        instance_options.typed(f"disk {number}", disk)
        if isinstance(disk, dict) and isinstance(disk.get("size"), str)
        else disk
        for number, disk in enumerate(disks)
    ]


def batch_create(values: Values, arguments: list[str]) -> int:
    """Create the instances of a file, and wait for all jobs (``batch-create``)."""
    from ganeti.opcodes.instance import OpInstanceMultiAlloc

    instances = read(arguments[0])
    client = jobs.connect()
    result = jobs.run_opcode(
        OpInstanceMultiAlloc(
            instances=[op.to_dict() for op in instances],
            iallocator=values.iallocator,
            **jobs.common_params(values),
        ),
        values,
        client=client,
    )
    if values.dry_run:
        return failures.EXIT_SUCCESS
    outcomes = jobs.await_submitted(result["jobs"], values, client)
    failed = sum(not outcome.success for outcome in outcomes)
    for name in result.get("failed", ()):
        terminal.err(f"The allocator found no node for instance {name}")
        failed += 1
    if failed:
        terminal.out(f"There were {failed} errors during the creation.")
        return failures.EXIT_FAILURE
    terminal.out("All instances created successfully.")
    return failures.EXIT_SUCCESS


BATCH_CREATE = Command(
    "batch-create",
    batch_create,
    [Argument("file", 1, 1)],
    [opt.DRY_RUN, opt.PRIORITY, opt.IALLOCATOR, *opt.SUBMIT_OPTIONS],
    "Create the instances which a JSON file describes",
)
