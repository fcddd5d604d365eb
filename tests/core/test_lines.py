"""Bytes into lines."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from proxy.core.lines import LineBuffer
from tests.core.strategies import law

streams = st.lists(st.sampled_from([b"\n", b"\r\n", b"a", "é".encode(), "\ufeff".encode(), b"\xff", b"{}"])).map(
    b"".join
)


def taken_apart(chunks: list[bytes]) -> tuple[list[str], str]:
    buffer = LineBuffer()
    return [line for chunk in chunks for line in buffer.feed(chunk)], buffer.rest()


@law
@given(stream=streams, cuts=st.lists(st.integers(0, 30)))
def test_lines_do_not_depend_on_how_the_bytes_arrive(stream: bytes, cuts: list[int]):
    """Cut in the middle of a character, of a line, or not at all."""
    edges = [0, *sorted(cuts), len(stream)]
    chunks = [stream[start:end] for start, end in pairwise(edges)]

    assert taken_apart(chunks) == taken_apart([stream])


@law
@given(
    lines=st.lists(st.text(st.characters(exclude_characters="\n\ufeff", exclude_categories=["Cs"]))), rest=st.text("ab")
)
def test_every_line_arrives_as_it_was_written(lines: list[str], rest: str):
    """Only a line feed ends a line, so that JSON with U+2028 in it stays in one piece."""
    stream = "".join(f"{line}\n" for line in lines) + rest

    assert taken_apart([stream.encode()]) == (lines, rest)


def test_bytes_that_are_no_utf_8_are_replaced():
    """One bad byte costs one character, not the connection."""
    assert LineBuffer().feed(b"a\xffb\n") == ["a\ufffdb"]


def test_a_byte_order_mark_is_dropped():
    """Some Windows programs begin with one."""
    assert LineBuffer().feed("\ufeff{}\n".encode()) == ["{}"]


def test_the_rest_is_what_no_end_of_line_followed():
    """It can be looked at before more comes."""
    buffer = LineBuffer()
    assert buffer.feed(b"one\ntw") == ["one"]
    assert buffer.rest() == "tw"
    assert buffer.feed(b"o\n") == ["two"]
    assert buffer.rest() == ""
