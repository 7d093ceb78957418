"""Numbers and names in the published form of the programs' output."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal

from ganeti.htools.policy import Policy, Spec

#: Disk template -> its name in policies as they are printed.
TEMPLATES = {
    "diskless": "DTDiskless",
    "file": "DTFile",
    "sharedfile": "DTSharedFile",
    "plain": "DTPlain",
    "blockdev": "DTBlock",
    "drbd": "DTDrbd8",
    "rbd": "DTRbd",
    "ext": "DTExt",
    "gluster": "DTGluster",
}

# Numbers outside of these limits are written with an exponent.
_SMALL, _LARGE = 0.1, 1e7


def fixed(value: float, digits: int) -> str:
    """Write a number with a fixed count of decimals; its shortest decimal form is rounded."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    quantum = Decimal(1).scaleb(-digits)
    return format(Decimal(repr(float(value))).quantize(quantum), "f")


def number(value: float) -> str:
    """Write a number in its shortest form, always with a decimal point."""
    if math.isnan(value) or math.isinf(value):
        return fixed(value, 0)
    if value == 0:
        return "-0.0" if math.copysign(1, value) < 0 else "0.0"
    if _SMALL <= abs(value) < _LARGE:
        return repr(float(value))
    sign, digits, exponent = Decimal(repr(float(value))).as_tuple()
    while len(digits) > 1 and digits[-1] == 0:
        digits = digits[:-1]
        exponent = int(exponent) + 1
    power = int(exponent) + len(digits) - 1
    rest = "".join(str(digit) for digit in digits[1:]) or "0"
    return f"{'-' if sign else ''}{digits[0]}.{rest}e{power}"


def exponential(value: float) -> str:
    """Write a number with an exponent and six decimals: ``1.000000e-9``."""
    mantissa, power = f"{value:.6e}".split("e")
    return f"{mantissa}e{int(power)}"


def general(value: float) -> str:
    """Write a number with six decimals, and with an exponent when it is very small or large."""
    if value == 0 or _SMALL <= abs(value) < _LARGE:
        return fixed(value, 6)
    return exponential(value)


def texts(values: Sequence[str]) -> str:
    """Write a list of texts: ``["a","b"]``."""
    return (
        "["
        + ",".join('"' + one.replace("\\", "\\\\").replace('"', '\\"') + '"' for one in values)
        + "]"
    )


def _spec(spec: Spec) -> str:
    return (
        f"ISpec {{iSpecMemorySize = {spec.memory}, iSpecCpuCount = {spec.cpus},"
        f" iSpecDiskSize = {spec.disk_size}, iSpecDiskCount = {spec.disk_count},"
        f" iSpecNicCount = {spec.nics}, iSpecSpindleUse = {spec.spindle_use}}}"
    )


def policy(value: Policy) -> str:
    """Write an instance policy as the programs print it."""
    ranges = ",".join(
        f"MinMaxISpecs {{minMaxISpecsMinSpec = {_spec(one.smallest)},"
        f" minMaxISpecsMaxSpec = {_spec(one.largest)}}}"
        for one in value.ranges
    )
    templates = ",".join(TEMPLATES.get(one, one) for one in value.templates)
    return (
        f"IPolicy {{iPolicyMinMaxISpecs = [{ranges}], iPolicyStdSpec = {_spec(value.standard)},"
        f" iPolicyDiskTemplates = [{templates}], iPolicyVcpuRatio = {number(value.vcpu_ratio)},"
        f" iPolicySpindleRatio = {number(value.spindle_ratio)}}}"
    )


def table(rows: Sequence[Sequence[str]], numeric: Sequence[bool]) -> list[str]:
    """Align the columns of a table: numbers to the right, texts to the left.

    Trailing spaces of the last column stay, because the published form has them.
    """
    if not rows:
        return []
    widths = [max(len(row[i]) for row in rows) for i in range(len(numeric))]
    return [
        " ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        )
        for row in rows
    ]
