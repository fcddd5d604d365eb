"""Libraries that are imported without their optional plugins work as they do with them."""

import subprocess
import sys

import pytest

from tests.program.process import ROOT

PROGRAM = """
import sys
from proxy.cli import light_imports
if sys.argv[1] == "differs":
    light_imports.tuple = "not callable"
light_imports.import_pydantic()
import pydantic
model = pydantic.create_model("Model", number=(int, ...))
print(model(number="7").number, getattr(sys.modules["pydantic.plugin._loader"], "__file__", None) is not None)
"""


@pytest.mark.parametrize(("loader", "printed"), [("as expected", "7 False"), ("differs", "7 True")])
def test_pydantic_loads_its_plugins_where_it_cannot_do_without(loader: str, printed: str):
    """A later version may use its private loader in other ways."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, loader], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.strip() == printed, done.stderr


def test_the_windows_of_rates_are_imported_with_the_first_call():
    """Nothing of them before a client has its first answers."""
    program = "import sys, proxy.app, proxy.face.stdio; print('limits' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.strip() == "False", done.stderr
