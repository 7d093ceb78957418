"""One parameter of a hypervisor: its type, its default and the check of its value.

The tables of the hypervisors (:mod:`ganeti.objects.hypervisors`) are made of these. Checks are
pure: whether a file exists is known only on a node, which asks
:func:`ganeti.objects.hvparams.paths_to_check` for the paths to look at.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Any

from ganeti import errors

# Names of types, as users and the constants of other subjects have them.
STRING = "string"
MAYBE_STRING = "maybe-string"
BOOL = "bool"
INT = "int"
FLOAT = "float"
SIZE = "size"

# What a node must find at a path.
FILE = "file"
DIRECTORY = "directory"
FILE_OR_URL = "file or URL"

# What a parameter is about: the guest, or a thing of the node. A description by somebody else, such
# as an appliance or an export, may say the first, and not the second (objects/description.py).
GUEST = "the guest"
# A model of hardware, as long as the value is a word; otherwise options of the program.
MODEL = "a model of hardware"
PROGRAM = "a program of the node"
NODE_FILE = "a file of the node"
DEVICE = "devices or processors of the node"
OPTION = "options of a program of the node"
ADDRESS = "an address of the node"
# Also what protects others from the guest, or the guest from others: any value counts.
PRIVILEGE = "privileges and protection of the guest"
#: All of them.
CONCERNS = (GUEST, MODEL, PROGRAM, NODE_FILE, DEVICE, OPTION, ADDRESS, PRIVILEGE)
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,63}")

Check = Callable[[Any], str]


class HvParam:
    """One parameter of a hypervisor.

    :ivar type: one of the names of types of this module.
    :ivar concerns: what it is about, one of :data:`CONCERNS`.
    :ivar one_of: the allowed values; empty allows all of the type.
    :ivar check: returns what is wrong with a value, as the end of a sentence, or an empty text.
    :ivar node_check: what a node must find at the path which is the value; empty for other values.
    :ivar required: whether the parameter must have a value which is not empty.
    """

    __slots__ = ("check", "concerns", "default", "name", "node_check", "one_of", "required", "type")

    def __init__(
        self,
        name: str,
        type_: str,
        default: Any,
        concerns: str,
        *,
        one_of: Collection[Any] = (),
        check: Check | None = None,
        node_check: str = "",
        required: bool = False,
    ) -> None:
        if concerns not in CONCERNS:
            raise errors.ProgrammerError(f"parameter {name} concerns {concerns!r}")
        self.name = name
        self.type = type_
        self.default = default
        self.concerns = concerns
        self.one_of = one_of
        self.check = check
        self.node_check = node_check
        self.required = required

    def problem(self, value: Any) -> str:
        """Return what is wrong with a value of the right type; empty when it is legal."""
        if value is None or value == "":
            return "must not be empty" if self.required else ""
        if self.one_of and value not in self.one_of:
            return f"must be one of {', '.join(map(str, self.one_of))}"
        if self.node_check and not (self.node_check == FILE_OR_URL and is_url(value)):
            return absolute_path(value)
        return self.check(value) if self.check is not None else ""

    def names_of_node(self, value: Any) -> str:
        """Return which thing of the node a value names, for people; empty when it names none.

        A path, a device or an option which is empty names nothing. Protection which is switched off
        is a value as any other.
        """
        if self.concerns == GUEST or (not value and self.concerns != PRIVILEGE):
            return ""
        if self.concerns == MODEL:
            return "" if isinstance(value, str) and _WORD.fullmatch(value) else OPTION
        return self.concerns


def is_url(value: str) -> bool:
    """Return True if the location of an image is a URL and not a path."""
    return value.startswith(("http://", "https://", "ftp://", "ftps://"))


def absolute_path(value: str) -> str:
    """Check of a path: absolute and normalised."""
    if not value.startswith("/") or "//" in value or "\0" in value:
        return "must be an absolute path without doubled slashes"
    if any(part in (".", "..") for part in value.split("/")) or (
        value != "/" and value.endswith("/")
    ):
        return "must be a normalised path"
    return ""


def between(low: int, high: int) -> Check:
    """Return a check of a number: from ``low`` to ``high``, both included."""
    return lambda value: "" if low <= value <= high else f"must be from {low} to {high}"


def non_negative(value: int) -> str:
    """Check of a number: zero or more."""
    return "" if value >= 0 else "must not be negative"


#: Check of a TCP port.
port = between(1, 65534)
