"""The commands ``gnt-instance startup``, ``shutdown`` and ``reboot``."""

from __future__ import annotations

from ganeti import TYPE_CHECKING
from ganeti.cli import instance_options, jobs
from ganeti.cli import options as opt
from ganeti.cli.command import Argument, Command, Option, Values
from ganeti.client.gnt_instance import selection
from ganeti.constants import instance as const

if TYPE_CHECKING:
    from ganeti.opcodes.base import OpCode


def _startup_opcode(name: str, values: Values) -> OpCode:
    from ganeti.opcodes.instance import OpInstanceStartup

    return OpInstanceStartup(
        instance_name=name,
        force=values.force,
        ignore_offline_nodes=values.ignore_offline,
        no_remember=values.no_remember,
        startup_paused=values.startup_paused,
        continue_paused=values.continue_paused or None,
        hvparams=instance_options.hypervisor_params(values.hvparams),
        beparams=instance_options.backend(values),
        **jobs.common_params(values),
    )


def _shutdown_opcode(name: str, values: Values) -> OpCode:
    from ganeti.opcodes.instance import OpInstanceShutdown

    return OpInstanceShutdown(
        instance_name=name,
        force=values.force,
        timeout=values.timeout,
        ignore_offline_nodes=values.ignore_offline,
        no_remember=values.no_remember,
        **jobs.common_params(values),
    )


def _reboot_opcode(name: str, values: Values) -> OpCode:
    from ganeti.opcodes.instance import OpInstanceReboot

    return OpInstanceReboot(
        instance_name=name,
        reboot_type=values.reboot_type,
        ignore_secondaries=values.ignore_secondaries,
        shutdown_timeout=values.shutdown_timeout,
        **jobs.common_params(values),
    )


startup = selection.for_each("will be started", "started", _startup_opcode)


shutdown = selection.for_each("will be stopped", "stopped", _shutdown_opcode)


reboot = selection.for_each("will be rebooted", "rebooted", _reboot_opcode)


_IGNORE_OFFLINE = opt.flag(
    "--ignore-offline", help="if the primary node is offline, only record the wanted state"
)


_NO_REMEMBER = opt.flag("--no-remember", help="do not change the wanted state")


_JOB = (opt.DRY_RUN, opt.PRIORITY, *opt.SUBMIT_OPTIONS)


COMMANDS = (
    Command(
        "startup",
        startup,
        [Argument("instance")],
        [
            opt.FORCE,
            *selection.SELECTION,
            opt.key_values(
                "-H",
                "--hypervisor-parameters",
                dest="hvparams",
                help="hypervisor parameters for this start only",
            ),
            opt.BACKEND,
            _IGNORE_OFFLINE,
            _NO_REMEMBER,
            opt.flag(
                "--paused", dest="startup_paused", help="leave the guest paused, for a debugger"
            ),
            opt.flag(
                "--continue",
                dest="continue_paused",
                help="let a guest run on which somebody has paused",
            ),
            *_JOB,
        ],
        "Start instances",
    ),
    Command(
        "shutdown",
        shutdown,
        [Argument("instance")],
        [
            opt.FORCE,
            *selection.SELECTION,
            opt.number(
                "--timeout",
                default=const.SHUTDOWN_TIMEOUT_S,
                metavar="SECONDS",
                help="how long a guest may take to stop by itself;"
                f" {const.SHUTDOWN_TIMEOUT_S} by default",
            ),
            _IGNORE_OFFLINE,
            _NO_REMEMBER,
            *_JOB,
        ],
        "Stop instances",
    ),
    Command(
        "reboot",
        reboot,
        [Argument("instance")],
        [
            Option(
                "-t",
                "--type",
                dest="reboot_type",
                choices=("soft", "hard", "full"),
                default="hard",
                metavar="<REBOOT>",
                help="soft: the guest reboots itself; hard (the default): stop and start the"
                " guest; full: also"
                " deactivate and activate its disks",
            ),
            *selection.SELECTION,
            opt.flag(
                "--ignore-secondaries",
                help="continue when disks cannot be activated on a secondary node",
            ),
            opt.SHUTDOWN_TIMEOUT,
            *_JOB,
        ],
        "Restart instances",
    ),
)
