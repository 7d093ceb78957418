"""Extension of Sphinx: recordings of a terminal become animations.

A page names a recording as an image, ``.. image:: ../drawings/demo.cast``, in the format asciicast.
The screens, as a terminal shows them, become one SVG whose styles show one after the other; pauses
are shortened. It needs no script. A reader who has asked for less motion sees the last screen.
"""

from __future__ import annotations

import html
import itertools
import json
from pathlib import Path
from typing import Any, NamedTuple

import pyte
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

#: Seconds: a screen is shown at least and at most so long, the last one longer.
_SHORTEST_S, _LONGEST_S, _LAST_S = 0.25, 1.2, 5.0
_CHAR_X, _CHAR_Y, _PAD = 8.0, 17.0, 10.0
_COLOURS = {
    "default": "#d8dee9", "black": "#5b6577", "red": "#f38b8b", "green": "#98d391",
    "brown": "#ebd282", "blue": "#8fb7f0", "magenta": "#d3a4e0", "cyan": "#85d1d8",
    "white": "#ffffff",
}  # fmt: skip


class Frame(NamedTuple):
    """A screen: its rows as SVG, and how long it is shown."""

    rows: tuple[str, ...]
    seconds: float


def frames(recording: Path) -> list[Frame]:
    """Return the screens of a recording; outputs which follow each other closely are one."""
    lines = recording.read_text(encoding="utf-8").splitlines()
    header, events = json.loads(lines[0]), [json.loads(line) for line in lines[1:]]
    screen = pyte.Screen(header["width"], header["height"])
    stream = pyte.Stream(screen)
    found: list[Frame] = []
    times = [event[0] for event in events]
    for (at, kind, text), after in zip(events, [*times[1:], times[-1] + _LAST_S], strict=True):
        if kind != "o":
            continue
        stream.feed(text)
        if after - at < _SHORTEST_S / 2:
            continue
        rows = tuple(_row(screen, y) for y in range(screen.lines))
        if not found or found[-1].rows != rows:
            found.append(Frame(rows, min(max(after - at, _SHORTEST_S), _LONGEST_S)))
    return [*found[:-1], Frame(found[-1].rows, _LAST_S)]


def _row(screen: pyte.Screen, y: int) -> str:
    """Return a row as elements ``tspan``: one for each run of characters which look alike."""
    cells = [screen.buffer[y][x] for x in range(screen.columns)]
    parts = []
    x = 0
    for (colour, bold), group in itertools.groupby(cells, key=lambda cell: (cell.fg, cell.bold)):
        words = "".join(cell.data for cell in group)
        if words.strip():
            fill = _COLOURS.get(colour, "#d8dee9")
            weight = ' font-weight="bold"' if bold else ""
            parts.append(
                f'<tspan x="{_PAD + x * _CHAR_X:g}" fill="{fill}"{weight}>'
                f"{html.escape(words.rstrip())}</tspan>"
            )
        x += len(words)
    return "".join(parts)


def animation(recording: Path, name: str) -> str:
    """Return a recording as one element ``svg``.

    :param name: of the styles, so that several animations can be on a page.
    """
    shown = frames(recording)
    header = json.loads(recording.read_text(encoding="utf-8").partition("\n")[0])
    width, height = header["width"] * _CHAR_X + 2 * _PAD, header["height"] * _CHAR_Y + 2 * _PAD
    total = sum(frame.seconds for frame in shown)
    styles, groups = [], []
    begin = 0.0
    for number, frame in enumerate(shown):
        first, last = 100 * begin / total, 100 * (begin + frame.seconds) / total
        begin += frame.seconds
        key = f"{name}-{number}"
        visible = f"{first:.3f}%{{visibility:visible}}{last:.3f}%{{visibility:hidden}}"
        styles.append(
            f"@keyframes {key}{{0%{{visibility:hidden}}{visible}100%{{visibility:hidden}}}}"
            f".{key}{{visibility:hidden;animation:{key} {total:.2f}s step-end infinite}}"
        )
        texts = "".join(
            f'<text y="{_PAD + (y + 0.8) * _CHAR_Y:g}">{row}</text>'
            for y, row in enumerate(frame.rows)
            if row
        )
        groups.append(f'<g class="{key}">{texts}</g>')
    last_key = f"{name}-{len(shown) - 1}"
    styles.append(
        f"@media (prefers-reduced-motion: reduce){{svg.recording g{{animation:none!important}}"
        f".{last_key}{{visibility:visible!important}}}}"
    )
    return (
        f'<svg class="recording" viewBox="0 0 {width:g} {height:g}">'
        f"<style>{''.join(styles)}</style>"
        f'<rect width="100%" height="100%" rx="8" fill="#20242c"/>'
        f'<g font-family="monospace" font-size="13" style="white-space:pre">'
        f"{''.join(groups)}</g></svg>"
    )


class Recordings(SphinxTransform):
    """Replaces images which are recordings."""

    default_priority = 391

    def apply(self, **kwargs: Any) -> None:
        """Change the present page."""
        page = Path(self.env.doc2path(self.env.docname))
        for image in list(self.document.findall(nodes.image)):
            if not image["uri"].endswith(".cast"):
                continue
            source = (page.parent / image["uri"]).resolve()
            self.env.note_dependency(str(source))
            alt = html.escape(image.get("alt", ""), quote=True)
            drawing = animation(source, source.stem)
            text = f'<div class="recording" role="img" aria-label="{alt}">{drawing}</div>'
            image.replace_self(nodes.raw("", text, format="html"))


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    app.add_transform(Recordings)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
