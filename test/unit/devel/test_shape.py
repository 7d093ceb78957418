"""The program which measures the shape of the code finds what it counts."""

from __future__ import annotations

import ast

import pytest

from devel.shape import copies, functions, imports, program, units, unused
from devel.shape.source import Source

BODY = "".join(f"    a = {number}\n" for number in range(functions.LONG))


def sources(**texts: str) -> list[Source]:
    """Files with these texts; two underscores in a name stand for a slash."""
    return [Source(f"{name.replace('__', '/')}.py", text) for name, text in texts.items()]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (f"def f():\n{BODY}", 61),
        (f'def f():\n    """One.\n\n    Two.\n    """\n{BODY}', 61),
        ("def f():\n    return 1\n", 2),
    ],
)
def test_the_length_of_a_function_is_without_its_docstring(text: str, count: int) -> None:
    (function,) = ast.parse(text).body
    assert isinstance(function, ast.FunctionDef)
    assert functions.length(function) == count


def test_a_function_of_sixty_lines_is_not_long() -> None:
    short, long = BODY.split("\n", 1)[1], BODY
    found = functions.long_functions(sources(x=f"def f():\n{short}\n\ndef g():\n{long}"))
    assert [(place.name, place.number) for place in found] == [("g", 61)]


@pytest.mark.parametrize(
    ("text", "depth"),
    [
        ("if a:\n  for b in c:\n    with d:\n      pass", 3),
        ("if a:\n  pass\nelif b:\n  pass\nelse:\n  pass", 1),
        ("if a:\n  pass\nelse:\n  if b:\n    pass\n  c = 1", 2),
        ("def f():\n  if a:\n    pass", 0),
    ],
)
def test_the_depth_counts_blocks(text: str, depth: int) -> None:
    assert functions.depth(ast.parse(text)) == depth


def test_a_signature_counts_its_named_parameters() -> None:
    wide = "def f(self, b, c, d, e, *, f, g, h, i, j): pass\ndef g(a, *args, **kwargs): pass"
    found = functions.wide_functions(sources(x=wide))
    assert [(place.name, place.number) for place in found] == [("f", 10)]


def test_helpers_which_take_a_unit_are_counted_below_ops_only() -> None:
    text = "def f(unit: AnyUnit): pass\ndef g(config: Config): pass"
    found = functions.unit_helpers(sources(cmdlib__ops__x=text, cmdlib__x=text))
    assert [(place.file, place.name) for place in found] == [("cmdlib/ops/x.py", "f")]


def needless(**texts: str) -> list[str]:
    return [place.name for place in units.needless(sources(**texts))]


@pytest.mark.parametrize(
    ("body", "more"),
    [
        ("unit.config.node(x); unit.rpc.call(y); unit.log.warn(z)", False),
        ("unit.ctx.config.node(x); g(unit.ctx.refused)", False),
        ("unit.op.force", True),
        ("unit.need(level, keys)", True),
        ("unit.ctx.callbacks.check_cancel()", True),
        ("unknown(unit)", True),
        ("found = unit", True),
    ],
)
def test_a_unit_is_needless_where_only_its_context_is_used(body: str, more: bool) -> None:
    text = f"def f(unit: AnyUnit): {body}"
    assert needless(cmdlib__ops__x=text) == ([] if more else ["f"])


@pytest.mark.parametrize("kind", ["AnyUnit", "NewInstanceUnit[Plan]", "LuContext"])
def test_each_kind_of_unit_is_looked_at(kind: str) -> None:
    assert needless(cmdlib__ops__x=f"def f(x: int, it: {kind}): it.log.warn(x)") == ["f"]


def test_the_whole_context_is_needed_for_the_job() -> None:
    assert needless(cmdlib__ops__x="def f(ctx: LuContext): ctx.callbacks.check_cancel()") == []


@pytest.mark.parametrize(("last", "found"), [("config", ["f", "g", "h"]), ("op", [])])
def test_who_passes_a_unit_on_needs_what_the_other_one_needs(last: str, found: list[str]) -> None:
    first = """
from ganeti.cmdlib.ops import other
def f(unit: AnyUnit): undo.add("words", other.g, unit, 1)
"""
    second = """
from ganeti.cmdlib.ops.third import h as again
def g(unit: AnyUnit, number: int): again(1, unit=unit)
"""
    third = f"def h(number: int, unit: AnyUnit): unit.{last}.x"
    assert (
        needless(cmdlib__ops__first=first, cmdlib__ops__other=second, cmdlib__ops__third=third)
        == found
    )


def test_a_function_which_gets_the_context_does_not_need_the_unit() -> None:
    text = "def f(unit: AnyUnit): g(unit.ctx)\ndef g(ctx: Context): pass"
    assert needless(cmdlib__ops__x=text) == ["f"]


@pytest.mark.parametrize(("use", "found"), [("rpc", ["f", "Work"]), ("downgrade_locks", [])])
def test_a_class_is_asked_what_it_does_with_its_unit(use: str, found: list[str]) -> None:
    text = f"""
def f(unit: AnyUnit): return Work(unit)
class Work:
    def __init__(self, unit: AnyUnit): self._unit = unit
    def run(self): self._unit.{use}.x
"""
    assert needless(cmdlib__ops__x=text) == found


def test_a_circle_of_helpers_does_not_need_the_unit_by_itself() -> None:
    text = "def f(unit: AnyUnit): g(unit)\ndef g(unit: AnyUnit): f(unit)"
    assert needless(cmdlib__ops__x=text) == ["f", "g"]


def test_a_unit_of_a_function_above_ops_is_not_counted() -> None:
    assert needless(cmdlib__x="def f(unit: AnyUnit): unit.config.x") == []


def test_a_circle_of_files_is_found() -> None:
    graph = imports.file_graph(
        sources(
            a="from ganeti import b",
            b="def f():\n    from ganeti.c import x",
            c="import ganeti.a",
            d="from ganeti.a import y",
        )
    )
    assert imports.circles(graph) == [["a.py", "b.py", "c.py"]]


def test_imports_for_annotations_count_on_request() -> None:
    files = sources(a="from ganeti import b", b="if TYPE_CHECKING:\n    from ganeti import a")
    assert imports.circles(imports.file_graph(files)) == []
    assert imports.circles(imports.file_graph(files, typing=True)) == [["a.py", "b.py"]]


def test_an_arrow_which_runs_back_is_found() -> None:
    graph = {
        "p/one/a.py": {"p/two/b.py"},
        "p/one/c.py": {"p/two/b.py"},
        "p/two/b.py": set(),
        "p/two/d.py": {"p/one/a.py"},
        "p/three.py": {"p/one/a.py", "p/two/d.py"},
    }
    (arrow,) = imports.arrows_back(graph)
    assert arrow[0] == "p"
    assert set(arrow[1:]) == {"one", "two"}


def test_no_arrow_runs_back_in_a_tree() -> None:
    assert imports.arrows_back({"a.py": {"b.py"}, "b.py": {"c.py"}, "c.py": set()}) == []


def test_a_copy_is_found_whatever_its_indentation_and_comments() -> None:
    lines = [f"call({number})" for number in range(copies.RUN)]
    one = "\n".join(lines)
    other = "if x:\n" + "\n".join(f"    {line}  \n    # comment" for line in lines)
    (copy,) = copies.copies(sources(a=one, b=other))
    assert (copy.first, copy.first_line, copy.second, copy.second_line, copy.lines) == (
        "a.py", 1, "b.py", 2, copies.RUN,
    )  # fmt: skip


def test_a_shorter_run_is_no_copy() -> None:
    one = "\n".join(f"call({number})" for number in range(copies.RUN - 1))
    assert copies.copies(sources(a=one, b=one)) == []


def test_a_name_without_a_caller_is_found() -> None:
    text = """
LIMIT = 3
USED = 4
def nobody(): pass
def somebody(): return USED
def by_name(): pass
@register
def decorated(): pass
class Thing:
    MEMBER = 5
    def method(self): pass
    def __len__(self): return 0
"""
    caller = 'somebody()\ngetattr(module, "by_name")'
    found = unused.unused(sources(x=text), sources(tools__y=caller))
    assert [one.name for one in found] == ["LIMIT", "nobody", "method"]


def test_each_exception_has_a_reason_and_a_definition() -> None:
    defined = unused.unused(program.source.read(), program.source.programs())
    for pattern, reason in unused.allowed().items():
        assert len(reason.split()) > 2, pattern
        assert any(unused.matches(one, pattern) for one in defined), f"{pattern} matches nothing"


@pytest.mark.parametrize("figure", program.FIGURES)
def test_a_limit_only_becomes_stricter(figure: str) -> None:
    found = [str(one) for one in program.FIGURES[figure](program.source.read())]
    limit = program.limits()[figure]
    listed = "\n".join(found)
    assert len(found) <= limit, f"{len(found)} {figure}, and {limit} are allowed:\n{listed}"
    assert len(found) == limit, (
        f"only {len(found)} {figure} are left: write this number into devel/shape/limits.json"
    )


def test_each_figure_has_a_limit() -> None:
    assert program.limits().keys() == program.FIGURES.keys()
