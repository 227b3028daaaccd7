"""Every example runs as it stands, and prints what the pages say it prints."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
OUTPUTS = runpy.run_path(str(ROOT / "docs" / "outputs.py"))
QUOTED = OUTPUTS["quoted"]()
EXAMPLES = sorted(str(path.relative_to(ROOT / "examples")) for path in (ROOT / "examples").rglob("*.py"))
# These print what differs from machine to machine, or nothing that a page quotes.
FIRST_STEPS = {
    "first_survey.py": "spectrum.two-zeros",
    "canonical_form.py": "W_QK rank 8",
    "edits.py": "head 0 of layer 1",
}
NUMBER = re.compile(r"(?<![\w.])[+-]?\d+(?:\.\d+)?(?:e[+-]?\d+)?")


def differences(printed: str, quoted: str) -> list[str]:
    """Lines whose words differ, or whose numbers differ by more than machines may.

    Other machines add in another order, and what is counted or ranked may then differ by one: two units of the last
    place, and two per cent.
    """
    ours, theirs = printed.splitlines(), quoted.splitlines()
    if len(ours) != len(theirs):
        return [f"{len(ours)} lines for {len(theirs)}"]
    return [
        f"{printed!r} for {expected!r}"
        for printed, expected in zip(ours, theirs, strict=True)
        if not _alike(printed, expected)
    ]


def _alike(printed: str, expected: str) -> bool:
    words = [" ".join(NUMBER.sub(" # ", line).split()) for line in (printed, expected)]
    pairs = zip(NUMBER.findall(printed), NUMBER.findall(expected), strict=False)
    return words[0] == words[1] and all(abs(float(a) - float(b)) <= _allowed(b) for a, b in pairs)


def _allowed(number: str) -> float:
    digits, _, power = number.partition("e")
    unit = 10.0 ** (int(power or 0) - len(digits.partition(".")[2]))
    return 2 * unit + 0.02 * abs(float(number))


@pytest.mark.parametrize("name", EXAMPLES)
def test_example(name):
    printed = OUTPUTS["printed"](name)
    if name in FIRST_STEPS:
        assert FIRST_STEPS[name] in printed
    else:
        assert not differences(printed, QUOTED[name]), "run `make docs-outputs`"
    assert len((ROOT / "examples" / name).read_text("utf-8").splitlines()) <= 80


def test_every_example_is_quoted_and_no_other():
    assert set(QUOTED) | set(FIRST_STEPS) == set(EXAMPLES)
    assert len(EXAMPLES) == 18


def test_a_changed_number_or_word_is_noticed():
    line = "L5H2 costs +0.250 [+0.200, +0.300] nats, 3 of 28, bound 2.0e-05"
    assert not differences(line, line.replace("0.250", "0.251").replace("3 of", "4 of"))
    for old, new in (("+0.250", "-0.250"), ("0.250", "0.270"), ("L5H2", "L5H1"), ("3 of", "6 of"), ("e-05", "e-04")):
        assert differences(line, line.replace(old, new))
    assert differences(line, f"{line}\n{line}")
