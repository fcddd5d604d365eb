"""Bytes into lines."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from proxy.wire.lines import LineBuffer
from tests.core.strategies import law

streams = st.lists(st.sampled_from([b"\n", b"\r\n", b"a", "é".encode(), b"\xff", b"{}"])).map(b"".join)


@law
@given(stream=streams, cuts=st.lists(st.integers(0, 30)))
def test_lines_do_not_depend_on_how_the_bytes_arrive(stream: bytes, cuts: list[int]):
    """Cut in the middle of a character, of a line, or not at all; only a line feed ends a line."""
    edges = [0, *sorted(cuts), len(stream)]
    buffer = LineBuffer()
    lines = [line for start, end in pairwise(edges) for line in buffer.feed(stream[start:end])]

    assert [*lines, *buffer.rest().split(b"\n")] == stream.split(b"\n")


@law
@given(stream=streams, cuts=st.lists(st.integers(0, 30)), limit=st.integers(0, 5))
def test_of_a_line_that_is_too_long_the_beginning_is_given_once(stream: bytes, cuts: list[int], limit: int):
    """One byte more than the limit, by which it is known, however it arrives; the lines around it are whole."""
    edges = [0, *sorted(cuts), len(stream)]
    buffer = LineBuffer(limit)
    lines = [line for start, end in pairwise(edges) for line in buffer.feed(stream[start:end])]

    expected = [line[: limit + 1] for line in stream.split(b"\n")]
    if len(expected[-1]) <= limit:
        assert buffer.rest() == expected.pop()
    assert lines == expected


def test_a_line_that_is_too_long_is_given_before_it_ends():
    """It may have no end; what follows of it is not kept."""
    buffer = LineBuffer(10)
    assert buffer.feed(b"0123456789") == []
    assert buffer.feed(b"0" * 1000) == [b"01234567890"]
    assert buffer.feed(b"0" * 1000) == []
    assert buffer.rest() == b""
    assert buffer.feed(b"0\nnext\n") == [b"next"]


def test_the_rest_is_what_no_end_of_line_followed():
    """It can be looked at before more comes."""
    buffer = LineBuffer()
    assert buffer.feed(b"one\ntw") == [b"one"]
    assert buffer.rest() == b"tw"
    assert buffer.feed(b"o\n") == [b"two"]
    assert buffer.rest() == b""
