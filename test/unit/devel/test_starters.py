"""All starters in ``scripts/``, ``daemons/`` and ``tools/`` have one form."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import ganeti
from ganeti import launcher

TOP = Path(__file__).resolve().parents[3]
STARTERS = sorted(
    str(path.relative_to(TOP))
    for folder in ("scripts", "daemons", "tools")
    for path in (TOP / folder).iterdir()
    if path.is_file()
)
TEMPLATE = """\
#!/usr/bin/env python3
import os
import sys

sys.path.insert(0, os.path.realpath(f"{os.path.realpath(__file__)}/../../lib"))
from ganeti import launcher

launcher.start("@MODULE@:@FUNCTION@")
"""
_START = re.compile(r"^launcher\.start\(\"(ganeti[\w.]*):(\w+)\"\)$", re.MULTILINE)


def _entry_point(starter: str) -> tuple[str, str]:
    found = _START.search((TOP / starter).read_text())
    assert found is not None, f"{starter} starts nothing"
    return found[1], found[2]


def test_every_kind_of_program_has_a_starter() -> None:
    assert {"scripts/gnt-instance", "daemons/ganeti-masterd", "daemons/daemon-util"} < set(STARTERS)
    assert {"tools/vcluster", "tools/kvm-console-wrapper"} < set(STARTERS)


@pytest.mark.parametrize("starter", STARTERS)
def test_a_starter_is_the_template(starter: str) -> None:
    module, function = _entry_point(starter)
    expected = TEMPLATE.replace("@MODULE@", module).replace("@FUNCTION@", function)
    assert (TOP / starter).read_text() == expected
    assert os.access(TOP / starter, os.X_OK)


@pytest.mark.parametrize("starter", STARTERS)
def test_the_entry_point_exists(starter: str) -> None:
    module, function = _entry_point(starter)
    spec = importlib.util.find_spec(module)
    assert spec is not None, f"there is no module {module}"
    assert spec.origin is not None
    tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    # A daemon gives the method of an object the name.
    names += [
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    ]
    assert function in names


@pytest.mark.programs
class TestCheckouts:
    """What a starter does in a checkout with and without a virtual environment."""

    @pytest.fixture
    def starter(self, tmp_path: Path) -> Path:
        """A starter in a checkout whose package prints where Python runs."""
        package = tmp_path / "lib/ganeti"
        package.mkdir(parents=True)
        for module in (ganeti, launcher):
            shutil.copy(module.__file__, package)
        (package / "program.py").write_text(
            "import sys\n\n\ndef main():\n    print(sys.executable, *sys.argv[1:])\n    return 3\n"
        )
        program = tmp_path / "tools/example"
        program.parent.mkdir()
        text = TEMPLATE.replace("@MODULE@", "ganeti.program").replace("@FUNCTION@", "main")
        program.write_text(text)
        return program

    @staticmethod
    def _run(starter: Path) -> subprocess.CompletedProcess[str]:
        # -I -S: without the packages of the environment in which the tests run.
        return subprocess.run(
            [sys.executable, "-I", "-S", starter, "word"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def test_the_virtual_environment_runs_what_the_program_starts(self, starter: Path) -> None:
        venv = starter.parents[1] / ".venv"
        version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
        (venv / "lib" / version / "site-packages").mkdir(parents=True)
        done = self._run(starter)
        assert (done.returncode, done.stdout) == (3, f"{venv}/bin/python word\n")

    def test_another_version_of_python_gives_way(self, starter: Path) -> None:
        python = starter.parents[1] / ".venv/bin/python"
        python.parent.mkdir(parents=True)
        python.write_text('#!/bin/sh\necho "instead: $*"\n')
        python.chmod(0o755)
        done = self._run(starter)
        assert (done.returncode, done.stdout) == (0, f"instead: {starter} word\n")

    def test_without_packages_it_says_what_to_do(self, starter: Path) -> None:
        done = self._run(starter)
        assert done.returncode == 1
        assert done.stderr == "example: no virtual environment. Run 'make venv' first.\n"

    def test_the_packages_of_the_machine_do(self, starter: Path) -> None:
        (starter.parents[1] / "lib/pycurl.py").write_text("")
        done = self._run(starter)
        assert (done.returncode, done.stdout) == (3, f"{sys.executable} word\n")

    def test_an_interrupt_while_it_is_loaded_ends_it_without_a_word(self, starter: Path) -> None:
        (starter.parents[1] / "lib/pycurl.py").write_text("")
        (starter.parents[1] / "lib/ganeti/program.py").write_text(
            "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n"
        )
        done = self._run(starter)
        assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")

    @pytest.mark.parametrize(
        "body", ["os.kill(os.getpid(), signal.SIGINT)", "raise KeyboardInterrupt"]
    )
    def test_an_interrupt_which_the_program_does_not_handle(self, starter: Path, body: str) -> None:
        (starter.parents[1] / "lib/pycurl.py").write_text("")
        (starter.parents[1] / "lib/ganeti/program.py").write_text(
            f"import os, signal\n\n\ndef main():\n    {body}\n"
        )
        done = self._run(starter)
        assert (done.returncode, done.stdout, done.stderr) == (130, "", "")

    def test_an_interrupt_at_its_end(self, starter: Path) -> None:
        (starter.parents[1] / "lib/pycurl.py").write_text("")
        (starter.parents[1] / "lib/ganeti/program.py").write_text(
            "import atexit, os, signal\n\n\ndef main():\n"
            "    atexit.register(os.kill, os.getpid(), signal.SIGINT)\n"
        )
        done = self._run(starter)
        assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")

    def test_ignored_interrupts_stay_ignored(self, starter: Path) -> None:
        (starter.parents[1] / "lib/pycurl.py").write_text("")
        (starter.parents[1] / "lib/ganeti/program.py").write_text(
            "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n\n\ndef main():\n"
            "    os.kill(os.getpid(), signal.SIGINT)\n    print('done')\n"
        )
        done = subprocess.run(
            ["sh", "-c", 'trap "" INT; exec "$@"', "sh", sys.executable, "-I", "-S", str(starter)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
