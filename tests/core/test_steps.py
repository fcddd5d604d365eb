"""Steps as the configuration has them."""

from proxy.core.steps import Call, Parallel, calls


def test_every_call_is_found_in_the_order_of_the_file():
    """Those side by side, too."""
    one, two, three, four = (Call(f"steps[{n}]", str(n), "gh", "search") for n in range(4))

    assert [*calls((one, Parallel("steps[1]", (two, three)), four))] == [one, two, three, four]
    assert [*calls(())] == []


def test_a_call_says_what_it_calls_as_the_configuration_has_it():
    """A tool of a server, or a skill."""
    assert Call("steps[0]", "find", "gh", "search").target == "gh/search"
    assert Call("steps[0]", "find", skill="finding").target == "skill finding"
