"""The texts with which ``gnt-job explain``, ``gnt-job top`` and the REST interface describe a job.

The master reports the facts and the reasons (request ``ExplainJob``); this module writes them as
text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ganeti import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

_FINAL = frozenset(("success", "error", "canceled"))
_UNITS = ((86400, "d"), (3600, "h"), (60, "min"))


def describe(found: Mapping[str, Any], now: float) -> list[str]:
    """Return an explanation as lines of text.

    :param found: the answer of the master for one job.
    :param now: seconds since the epoch.
    """
    job = found["job"]
    lines = [f"Job {job['id']}: {headline(job, now)}"]
    lines += _said(job, now, "  ")
    if found["reasons"]:
        lines.append("It waits for:" if _is_wait(found["reasons"]) else "Why:")
        lines += _reasons(found["reasons"], now, "  ")
    else:
        lines.append(nothing(job))
    if found["chain"]:
        lines.append("Jobs it waits for, and their reasons:")
        for entry in found["chain"]:
            lines += _entry(entry, now)
    if found["more"]:
        lines.append("  and further jobs")
    lines.append("Locks it holds:" if found["holds"] else "It holds no lock.")
    lines += [f"  lock {lock['name']} ({lock['mode']})" for lock in found["holds"]]
    lines += [f"Note: {note}" for note in found["notes"]]
    return lines


def nothing(job: Mapping[str, Any]) -> str:
    """Return the line for a job that waits for nothing."""
    return "It waits for nothing: it " + (
        "has ended." if job["status"] in _FINAL else "is running."
    )


def headline(job: Mapping[str, Any], now: float) -> str:
    """Return state, time and opcode of a job: ``waiting for 12 s, INSTANCE_STARTUP(web1)``."""
    state = str(job["status"])
    if job["since"] is not None:
        span = format_span(now - job["since"])
        state += f" {span} ago" if state in _FINAL else f" for {span}"
    return f"{state}, {work(job)}"


def work(job: Mapping[str, Any]) -> str:
    """Return the present opcode of a job, with its number if there are several."""
    if job["opcode"] is None:
        return ",".join(job["summary"])
    place = f" ({job['opcode_number']} of {job['opcodes']})" if job["opcodes"] > 1 else ""
    return f"{job['opcode']}{place}"


def brief(entry: Mapping[str, Any]) -> str:
    """Return the first reason why a job waits, or the last line of its log."""
    if entry["reasons"]:
        return str(entry["reasons"][0]["text"])
    return str(entry["job"]["message"] or "")


def format_span(seconds: float) -> str:
    """Return a time span in one unit: ``12 s``, ``3 min``, ``2 h``, ``4 d``."""
    for size, name in _UNITS:
        if seconds >= 2 * size:
            return f"{int(seconds // size)} {name}"
    return f"{max(0, int(seconds))} s"


def _is_wait(reasons: Sequence[Mapping[str, Any]]) -> bool:
    """Return True if the texts name objects (a lock, the end of a job, a worker) and are not
    sentences.
    """
    return all(reason["kind"] in ("lock", "dependency", "worker") for reason in reasons)


def _reasons(reasons: Sequence[Mapping[str, Any]], now: float, indent: str) -> list[str]:
    lines = []
    for reason in reasons:
        since = reason.get("since")
        waited = "" if since is None else f", for {format_span(now - since)}"
        lines.append(f"{indent}{reason['text']}{waited}")
    return lines


def _entry(entry: Mapping[str, Any], now: float) -> list[str]:
    indent = "  " * entry["depth"]
    job = entry["job"]
    lines = [f"{indent}job {job['id']}: {headline(job, now)}"]
    lines += _said(job, now, f"{indent}  ")
    for line in _reasons(entry["reasons"], now, ""):
        prefix = "waits for " if _is_wait(entry["reasons"]) else ""
        lines.append(f"{indent}  {prefix}{line}")
    return lines


def _said(job: Mapping[str, Any], now: float, indent: str) -> list[str]:
    """Return the line with the last entry of the log of a job."""
    if job["message"] is None:
        return []
    ago = "" if job["message_time"] is None else f", {format_span(now - job['message_time'])} ago"
    return [f"{indent}last log entry{ago}: {str(job['message']).strip()}"]
