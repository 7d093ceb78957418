"""Whatever a client sends, it gets an opcode or a clear refusal."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from ganeti import errors, opcodes
from ganeti.wire import json

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
    | st.sampled_from(["add", "remove", "10.0.0.0/24", "::1", "success"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["size", "mode", "ip", "x", ""]), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None)
@given(op_id=st.sampled_from(opcodes.op_ids()), data=st.data())
def test_random_parameters(op_id, data):
    names = list(opcodes.lookup(op_id).PARAMS)
    given_names = data.draw(st.lists(st.sampled_from([*names, "unknown"]), unique=True))
    values = {name: data.draw(VALUES) for name in given_names}
    try:
        op = opcodes.from_dict({"OP_ID": op_id, **values}).validate()
    except errors.OpPrereqError as err:
        assert op_id in str(err) and err.ecode == errors.ECODE_INVAL
        return
    again = opcodes.from_dict(json.loads(json.dumps(op.to_dict()))).validate()
    assert again == op
    assert op.summary().startswith(op_id[3:]) and repr(op)


@settings(max_examples=100, deadline=None)
@given(VALUES)
def test_random_opcodes(value):
    for candidate in (value, {"OP_ID": value}):
        try:
            opcodes.from_dict(candidate)
        except (errors.OpPrereqError, errors.OpCodeUnknown):
            continue
        raise AssertionError(f"{candidate!r} is not an opcode")
