"""Package description; ``make venv`` installs it in place, ``make install`` for a whole machine."""

import re
from pathlib import Path

from setuptools import find_packages, setup

_TOP = Path(__file__).resolve().parent
_VERSION = re.search(
    r'RELEASE = "([^"]+)"', (_TOP / "lib/ganeti/__init__.py").read_text(encoding="utf-8")
)
assert _VERSION is not None

RUNTIME = [
    "pycurl",
    "pyinotify",
    # pyinotify needs a module which Python 3.12 removed from its standard library.
    "pyasyncore; python_version >= '3.12'",
    "pyOpenSSL",
    "cryptography",
    "simplejson",
    "pyparsing",
    "PyYAML",
    "numpy",
]
#: With it, commands and daemons send traces when OTEL_EXPORTER_OTLP_ENDPOINT is set.
TRACING = ["opentelemetry-sdk", "opentelemetry-exporter-otlp-proto-http"]
#: With it, the REST daemon accepts WebSockets.
WEBSOCKET = ["wsproto>=1.2"]
#: With them, users of the REST daemon may have one-time codes and passkeys.
FACTORS = ["pyotp>=2.6", "fido2>=0.9.1", "segno"]
#: With it, the REST daemon checks passwords by PAM.
PAM = ["pamela>=1.0"]
#: With it, people log in at another server by OpenID Connect.
OIDC = ["Authlib>=1.2,<2"]
DEVELOPMENT = [
    *TRACING,
    *WEBSOCKET,
    *FACTORS,
    *PAM,
    *OIDC,
    "oidc-provider-mock",
    "websockets",
    "pytest",
    "pytest-xdist",
    "hypothesis",
    "jsonschema",
    "pyte",
    "openapi-python-client",
    "openapi-spec-validator",
    "prometheus_client",
    "schemathesis",
    "ruff",
    "mypy",
    "docutils",
    "myst-parser",
    "sphinx",
    "furo",
    "types-PyYAML",
    "types-docutils",
    "types-pyOpenSSL",
    "types-pycurl",
    "types-setuptools",
    "types-simplejson",
]
#: The commands which work over the REST interface, for machines outside of the cluster.
COMMANDS = (
    "backup", "cluster", "debug", "filter", "group", "instance", "job", "network", "node", "os",
    "storage",
)  # fmt: skip

setup(
    name="ganeti",
    version=_VERSION.group(1),
    description="Cluster manager for virtual machines",
    license="BSD-2-Clause",
    python_requires=">=3.11",
    package_dir={"": "lib"},
    packages=find_packages("lib"),
    package_data={"": ["*.rst", "py.typed"]},
    install_requires=RUNTIME,
    extras_require={
        "dev": DEVELOPMENT,
        "tracing": TRACING,
        "websocket": WEBSOCKET,
        "pam": PAM,
        "oidc": OIDC,
        "factors": FACTORS,
    },
    entry_points={
        "console_scripts": [f"gnt-{name}=ganeti.client.gnt_{name}.program:run" for name in COMMANDS]
    },
)
