"""The command ``gnt-node add --token``: wait for a machine which joins with a token."""

from __future__ import annotations

from ganeti import TYPE_CHECKING, errors
from ganeti.cli import failures, jobs, terminal
from ganeti.cli.command import Values
from ganeti.platform import hosts

if TYPE_CHECKING:
    from ganeti.luxi import client as luxi
    from ganeti.opcodes.node import OpNodeAdd

_INSTRUCTIONS = """\
Run 'ganeti-join' on {name} and enter this token when it asks.
The token is valid once, for this machine only, until {expires}.
It gives access to the credentials of the cluster; keep it secret.

{token}

Waiting. Interrupt this command to revoke the token."""


def add(values: Values, host: hosts.Hostname, opcode: OpNodeAdd, client: luxi.Client) -> int:
    """Print a token, wait for the machine, and let the master add the node.

    :returns: the exit code.
    :raises OpPrereqError: no machine joined in time, or it could not be prepared.
    """
    from ganeti.bootstrap import join
    from ganeti.platform import paths
    from ganeti.utils import clock

    if values.token_lifetime <= 0:
        raise errors.OpPrereqError(
            f"--token-lifetime must be more than 0 seconds, not {values.token_lifetime}",
            errors.ECODE_INVAL,
        )
    with join.JoinOffer(
        host, join.master_address(), lifetime_s=values.token_lifetime, on_refused=terminal.err
    ) as offer:
        terminal.out(
            _INSTRUCTIONS.format(
                name=host.name,
                expires=clock.format_time(offer.token.expires),
                token=offer.token.encode(),
            )
        )
        machine = offer.wait()
    try:
        terminal.out(f"{host.name} has the token; sending the credentials")
        machine.equip(paths.current())
        opcode.certificate = machine.certificate
        jobs.run_opcode(opcode, values, client=client)
    except (jobs.SubmissionInterrupted, jobs.WaitInterrupted, errors.LuxiError):
        # The job may continue and needs the prepared machine.
        machine.close()
        raise
    except errors.GenericError as err:
        machine.refuse(str(err))
        raise
    except BaseException:
        machine.close()
        raise
    machine.accept()
    return failures.EXIT_SUCCESS
