"""``gnt-node add --token``: wait for a machine that makes itself a node with a one-time token."""

from __future__ import annotations

from ganeti import errors
from ganeti.cli import failures, jobs, terminal
from ganeti.cli.command import Values
from ganeti.platform import hosts

TYPE_CHECKING = False  # the name type checkers look for; importing typing costs milliseconds
if TYPE_CHECKING:
    from ganeti.luxi import client as luxi
    from ganeti.opcodes.node import OpNodeAdd

_INSTRUCTIONS = """\
On {name} run 'ganeti-join' and give it this token when it asks.
It is good once, for this machine only, and until {expires}.
Whoever has it can get the cluster's credentials.

{token}

Waiting. Interrupt to take the token back."""


def add(values: Values, host: hosts.Hostname, opcode: OpNodeAdd, client: luxi.Client) -> int:
    """Print a token, wait for its bearer, then let the master take the machine in.

    :raises OpPrereqError: nobody came in time, or the machine could not be prepared.
    """
    from ganeti.bootstrap import join
    from ganeti.platform import paths
    from ganeti.utils import clock

    if values.token_lifetime <= 0:
        raise errors.OpPrereqError(
            f"a token cannot be good for {values.token_lifetime} seconds", errors.ECODE_INVAL
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
        terminal.out(f"{host.name} proved that it has the token, sending it the credentials")
        machine.equip(paths.current())
        jobs.run_opcode(opcode, values, client=client)
    except (jobs.WaitInterrupted, errors.LuxiError):
        # The job may go on and needs the machine as it is; this is not for us to say.
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
