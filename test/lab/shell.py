"""``devel/lab shell``: starts a cluster in the laboratory, and opens a shell on its master.

The other nodes are reached from there with ssh. Everything is taken down when the shell ends.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from lab import image, qemu
from lab.cluster import Cluster
from lab.machines import Lab, ended_in_order, missing_programs


def main() -> int:
    """Run the program; returns 0 after the shell ended, 1 when the laboratory cannot run."""
    missing = missing_programs()
    if missing:
        print(
            f"the laboratory needs {', '.join(missing)} (packages: {' '.join(image.PACKAGES)})",
            file=sys.stderr,
        )
        return 1
    try:
        with ended_in_order():
            return run(int(sys.argv[1]))
    except KeyboardInterrupt:
        print("ended; nothing is left", file=sys.stderr)
        return 128 + signal.SIGINT


def run(count: int) -> int:
    """Start ``count`` machines and a shell; returns the exit code."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gntlab-") as directory:
        try:
            lab = Lab(Path(directory), count)
            lab.prepare()
        except image.CannotBuild as err:
            print(f"no image for the laboratory: {err}", file=sys.stderr)
            return 1
        print(f"starting {count} machines ({qemu.accelerator(lab.image)}) ...", flush=True)
        with lab:
            print("making a cluster of them ...", flush=True)
            cluster = Cluster(lab)
            cluster.make()
            print(
                f"ready after {time.monotonic() - begin:.0f} s. The other nodes: ssh node2 ..."
                " Everything is gone when you leave.",
                flush=True,
            )
            argv = cluster.master.ssh_argv()
            # The exit code of the last command in the shell is ignored; 255 is an error of ssh.
            return int(subprocess.run([*argv[:-1], "-t", argv[-1]]).returncode == 255)


if __name__ == "__main__":
    sys.exit(main())
