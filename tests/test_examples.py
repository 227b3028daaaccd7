"""Every example runs as it stands."""

import runpy
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_example(path, capsys):
    runpy.run_path(str(path), run_name="__main__")
    printed = capsys.readouterr().out
    told = {
        "first_survey.py": "spectrum.two-zeros",
        "canonical_form.py": "W_QK rank 8",
        "edits.py": "head 0 of layer 1",
    }
    assert told[path.name] in printed
    assert len(path.read_text().splitlines()) < 60


def test_there_are_examples():
    assert len(EXAMPLES) == 3
