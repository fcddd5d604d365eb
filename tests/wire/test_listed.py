"""Lists that go out again and again: encoded once, and the same on the wire as any other."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.inventory import Listed
from proxy.wire import codec
from proxy.wire.codec import dumps, loads, result_line
from tests.core.strategies import law

ids = st.integers() | st.text()
members = st.dictionaries(
    st.text(), st.none() | st.integers() | st.text() | st.lists(st.floats(allow_nan=False, allow_infinity=False))
)


@law
@given(request=ids, before=members, listed=st.lists(members), after=members)
def test_a_response_with_such_a_list_reads_as_one_without(request: object, before: Any, listed: Any, after: Any):
    """Wherever in the result it stands, and the second time as the first."""
    result = {**before, "tools": Listed(listed), **after}
    plain = {**before, "tools": listed, **after}
    for _ in range(2):
        line = result_line(request, result)
        assert line.endswith(b"\n")
        assert line.count(b"\n") == 1
        read = json.loads(line)
        assert repr(read) == repr({"jsonrpc": "2.0", "id": request, "result": plain})
        assert repr(loads(line)) == repr(read)


def test_a_list_is_encoded_once_for_all_responses(monkeypatch: pytest.MonkeyPatch):
    """However many ask for it and whatever stands beside it; another list of the same tools is another."""
    encoded: list[object] = []

    def noting(message: object) -> bytes:
        encoded.append(message)
        return dumps(message)

    monkeypatch.setattr(codec, "dumps", noting)
    listed, other = Listed([{"name": "a"}]), Listed([{"name": "a"}])
    lines = [result_line(number, {"tools": listed, "ttlMs": number}) for number in range(3)]
    lines.append(result_line(3, {"tools": other, "ttlMs": 3}))

    assert [json.loads(line)["result"] for line in lines] == [
        {"tools": [{"name": "a"}], "ttlMs": number} for number in range(4)
    ]
    assert sum(one is listed for one in encoded) == 1
    assert sum(one is other for one in encoded) == 1


@pytest.mark.parametrize("name", ["\ud800", 10**30])
def test_a_list_may_hold_what_only_the_slow_way_can_write(name: object):
    """It reads the same."""
    result = {"tools": Listed([{"name": name}])}
    for _ in range(2):
        assert json.loads(result_line(1, result))["result"] == result


def test_a_list_that_cannot_be_encoded_is_told_each_time():
    """As one kind of error; nothing of it is kept."""
    listed = Listed([{"name": object()}])
    for _ in range(2):
        with pytest.raises(ValueError):
            result_line(1, {"tools": listed})
    assert listed.encoded is None
