"""Every example in docs/coming-from.md is run: it loads as it stands, and `init --from` writes one that does."""

import os
import re
from pathlib import Path

import pytest

from proxy.cli.init import init
from proxy.config.load import load
from proxy.config.notations import ALIASES, PLUGIN, UNUSED_IN_ENTRIES

PAGE = (Path(__file__).parents[2] / "docs" / "coming-from.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("text", EXAMPLES)
def test_each_example_loads_and_is_taken_over(text: str, tmp_path: Path):
    """The configuration that is written of it offers the same skills, with the same grants."""
    source, target = tmp_path / "theirs.yaml", tmp_path / "ours.yaml"
    source.write_text(text, encoding="utf-8")
    skills = load(source, os.environ).catalogue.skills
    assert skills
    assert init(source, target) == 0
    assert load(target, os.environ).catalogue.skills == skills


def test_the_page_names_every_key_that_is_read_or_named():
    """Whatever of other systems the program knows."""
    keys = [*UNUSED_IN_ENTRIES, *(key for key in (*ALIASES, *PLUGIN) if "_" in key or key.islower())]
    assert [key for key in keys if f"`{key}" not in PAGE] == []
