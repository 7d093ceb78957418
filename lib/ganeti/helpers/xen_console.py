"""The program ``xen-console-wrapper``: connects a terminal to the console of a guest under Xen.

``gnt-instance console`` runs it on the primary node with the published arguments (``xl
<instance>``). A guest which was started paused begins to run when its console is connected, so that
its first messages can be seen. Then ``xl console`` replaces this program; it ends with Ctrl-].
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence

from ganeti import errors
from ganeti.constants.cli import EXIT_FAILURE
from ganeti.hypervisor.xen import guests, xl

#: How long the console gets to connect before the guest runs.
_CONNECT_S = 1.0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; returns its exit code when the console cannot be connected."""
    parser = argparse.ArgumentParser(
        prog="xen-console-wrapper",
        description="Connects a terminal to the console of a guest under Xen.",
    )
    parser.add_argument("xl", choices=(xl.PROGRAM,), help="the program which drives Xen")
    parser.add_argument("instance", help="name of the instance")
    options = parser.parse_args(argv)
    try:
        domain = guests.find(options.instance, xl.domains())
        if domain is None or not domain.lives:
            raise errors.HypervisorError(f"instance {options.instance} is not running")
        if domain.is_paused:
            _continue_later(domain.id)
        os.execvp(xl.PROGRAM, [xl.PROGRAM, "console", str(domain.id)])
    except (errors.GenericError, OSError) as err:
        print(f"xen-console-wrapper: error: {err}", file=sys.stderr)
    return EXIT_FAILURE


def _continue_later(domain_id: int) -> None:
    """Let a guest run when the console is connected."""
    if os.fork():
        return
    try:
        time.sleep(_CONNECT_S)
        xl.run("unpause", str(domain_id))
    except (errors.GenericError, OSError) as err:
        print(f"xen-console-wrapper: {err}", file=sys.stderr)
    finally:
        os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
