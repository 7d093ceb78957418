"""Numbers and names in the published form of the programs' output."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ganeti.htools.policy import Policy, Spec
from ganeti.objects import disk_templates

# Numbers outside of these limits are written with an exponent.
_SMALL, _LARGE = 0.1, 1e7


def template_name(template: str) -> str:
    """Return the name of a disk template in policies as they are printed."""
    known = template in disk_templates.ALL
    return disk_templates.of(template).htools_name if known else template


def fixed(value: float, digits: int) -> str:
    """Write a number with a fixed count of decimals; its shortest decimal form is rounded."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    sign, written, exponent = _decimal(value)
    shift = digits + exponent
    if shift >= 0:
        written *= 10**shift
    else:
        written, rest = divmod(written, 10**-shift)
        # A number in the middle becomes even.
        written += 2 * rest + written % 2 > 10**-shift
    text = str(written).rjust(digits + 1, "0")
    return f"{sign}{text[:-digits]}.{text[-digits:]}" if digits else sign + text


def _decimal(value: float) -> tuple[str, int, int]:
    """Return the shortest decimal form of a number: its sign, its digits, and the power of ten."""
    text = repr(float(value))
    mantissa, _, power = text.lstrip("-").partition("e")
    whole, _, fraction = mantissa.partition(".")
    return "-" * text.startswith("-"), int(whole + fraction), int(power or 0) - len(fraction)


def number(value: float) -> str:
    """Write a number in its shortest form, always with a decimal point."""
    if math.isnan(value) or math.isinf(value):
        return fixed(value, 0)
    if value == 0:
        return "-0.0" if math.copysign(1, value) < 0 else "0.0"
    if _SMALL <= abs(value) < _LARGE:
        return repr(float(value))
    sign, written, exponent = _decimal(value)
    digits = str(written)
    power = exponent + len(digits) - 1
    digits = digits.rstrip("0")
    return f"{sign}{digits[0]}.{digits[1:] or '0'}e{power}"


def exponential(value: float) -> str:
    """Write a number with an exponent and six decimals: ``1.000000e-9``."""
    mantissa, power = f"{value:.6e}".split("e")
    return f"{mantissa}e{int(power)}"


def general(value: float) -> str:
    """Write a number with six decimals, and with an exponent when it is very small or large."""
    if value == 0 or not math.isfinite(value) or _SMALL <= abs(value) < _LARGE:
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
    templates = ",".join(template_name(one) for one in value.templates)
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
