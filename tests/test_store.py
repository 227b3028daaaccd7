"""Does a survey come back from disk as it was, and does a failed write leave the old one alone?"""

import errno
import hashlib
import json
import os
import runpy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from armillary.errors import OutputError
from armillary.results import (
    Column,
    Finding,
    LawCheck,
    Part,
    Plan,
    Rewording,
    RuleChange,
    Statistic,
    Survey,
    Table,
    TextFacts,
    Times,
    Why,
)
from armillary.results.disk.folder_swap import JOURNAL, tidy
from armillary.results.store import (
    check_writable,
    finding_json,
    read_survey,
    survey_json,
    table_csv,
    write_survey,
)

SYNTHETIC = runpy.run_path(str(Path(__file__).parent / "browser" / "synthetic.py"))


@pytest.fixture
def survey() -> Survey:
    survey: Survey = SYNTHETIC["synthetic_survey"]()
    odd = Table(
        (Column("token", "as it is"), Column("x", "mixed"), Column("y", "numbers")),
        (
            ("", None, 0.1),
            ("\udce2", 1, float("nan")),
            (None, "1", float("inf")),
            ("a\r\n\tb\0", True, -0.0),
            ("1e5", 2.5, 1e-300),
        ),
    )
    first = replace(survey.findings[0], table=odd, statistic=Statistic("s", float("nan"), 0.0, float("inf")))
    return replace(survey, findings=(first, *survey.findings[1:]))


def sign(folder: Path) -> None:
    """The manifest of a survey.json that somebody wrote by hand."""
    listed = json.loads((folder / "manifest.json").read_text("utf-8"))
    listed["files"]["survey.json"] = hashlib.sha256((folder / "survey.json").read_bytes()).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(listed), "utf-8")


def same(a: object, b: object) -> bool:
    """Equal in value and type, NaN equal to itself."""
    return repr(a) == repr(b)


def test_parts_and_kinds_come_back(survey: Survey, tmp_path: Path) -> None:
    parts = (
        Part("one", "supported", "It holds.", Statistic("share", 0.9, float("nan"), 1.0)),
        Part("two", "undecided", "Too close.", asserted=False, why=Why.SPANS_LIMIT),
    )
    first = survey.findings[0]
    first = replace(first, parts=parts, claim=replace(first.claim, kind="learned"))
    write_survey(replace(survey, findings=(first,)), tmp_path)
    (back,) = read_survey(tmp_path)
    assert same(back.parts, parts)
    assert back.claim.kind == "learned"


@pytest.mark.parametrize(("key", "value"), [("kind", "<b>true</b>"), ("verdict", "certain")])
def test_an_unknown_kind_or_verdict_of_a_part_is_refused(survey: Survey, tmp_path: Path, key: str, value: str) -> None:
    first = replace(survey.findings[0], parts=(Part("one", "supported", "It holds."),))
    path = write_survey(replace(survey, findings=(first,)), tmp_path)
    record = json.loads(path.read_text())
    claim = record["claims"][0]
    (claim["parts"][0] if key == "verdict" else claim)[key] = value
    path.write_text(json.dumps(record))
    sign(tmp_path)
    with pytest.raises(OutputError, match=f"{key} is '{value}', not one of"):
        read_survey(tmp_path)


def test_everything_comes_back(survey: Survey, tmp_path: Path) -> None:
    write_survey(survey, tmp_path)
    back = read_survey(tmp_path)
    assert survey_json(back) == survey_json(survey)
    for was, now in zip(survey, back, strict=True):
        assert now.claim == was.claim
        assert same(now.table, was.table)
        assert [(n, table_csv(t)) for n, t in now.more_tables.items()] == [
            (n, table_csv(t)) for n, t in was.more_tables.items()
        ]
        assert now.controls == was.controls
        assert (now.reading, now.notes, now.caption, now.n) == (was.reading, was.notes, was.caption, was.n)
        for p, q in zip(was.quantities, now.quantities, strict=True):
            assert (p.axes, p.logs, p.unit) == (q.axes, q.logs, q.unit)
            assert {a: list(c) for a, c in p.coords.items()} == {a: list(c) for a, c in q.coords.items()}
            np.testing.assert_array_equal(p.values, q.values)
            for name in p.controls:
                np.testing.assert_array_equal(p.controls[name], q.controls[name])
    assert back["sphere.direction"].quantities[0].values.shape == (30, 9)
    assert np.isnan(back.findings[0].statistic.value)
    assert (back.model, back.text, back.laws, back.provenance) == (
        survey.model, survey.text, survey.laws, survey.provenance
    )  # fmt: skip


def test_reasons_changed_rules_notes_and_times_come_back(survey: Survey, tmp_path: Path) -> None:
    first = survey.findings[0]
    claim = replace(
        first.claim,
        changes=(RuleChange("2025-01-01", "a reason"),),
        question="Is it so?",
        rewordings=(Rewording("2025-01-02", "0123456789ab", 1),),
    )
    failed = replace(first, claim=claim, verdict="failed", why=Why.FAILED)
    plan = Plan(8, 2, 2500, 30.5, 1000, 40.0)
    times = Times("2025-01-01T00:00:00+00:00", 12.5, {"sphere.radius": 1.5}, plan)
    stored = replace(survey, findings=(failed,), notes=("Traceback …",), times=times)
    back = read_survey(write_survey(stored, tmp_path))
    assert (back.times, back.notes, back.findings[0].claim) == (times, ("Traceback …",), claim)
    assert (back.findings[0].verdict, back.findings[0].why) == ("failed", Why.FAILED)


def test_a_survey_of_schema_1_is_read() -> None:
    old = read_survey(Path(__file__).parent / "schema1")
    assert [finding.id for finding in old] == ["sphere.radius", "rank.nullspace"]
    assert (old.model.name, old.model.layers, old.model.d, old.text.tokens) == ("builtin:gpt", 7, 256, 300)
    assert len(old.laws) == 9 and old.times.plan is not None and old.times.plan.claims == 2
    assert (old.provenance.rules_version, old.notes, old.findings[0].why) == ("", (), None)
    assert old["sphere.radius"].table.rows


def test_json_is_strict_and_deterministic(survey: Survey) -> None:
    text = survey_json(survey)
    again = SYNTHETIC["synthetic_survey"]
    assert survey_json(again()) == survey_json(again())

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    record = json.loads(text, parse_constant=refuse)
    assert record["schema"] == 3
    assert record["claims"][0]["statistic"]["value"] is None
    assert record["claims"][1]["rule"]
    assert record["claims"][1]["control"]
    assert {"name", "meaning", "unit"} <= set(record["claims"][1]["columns"][0])
    assert json.loads(finding_json(survey.findings[1]))["id"] == "sphere.plane"


def test_numpy_scalars_are_stored_as_numbers_and_strangers_refused() -> None:
    table = Table((Column("x", ""),), ((np.float64(0.5),), (np.float32(0.5),)))
    assert table_csv(table) == "x\n0.5\n0.5\n"
    finding: Finding = SYNTHETIC["synthetic_survey"]().findings[0]
    with pytest.raises(TypeError, match="column 'x' holds"):
        finding_json(replace(finding, table=Table((Column("x", ""),), (([1],),))))  # type: ignore[arg-type]


class FullDisk:
    """os.replace or os.fsync on a disk that fills up at the n-th call."""

    def __init__(self, real: object, calls: int, code: int = errno.ENOSPC) -> None:
        self.real, self.left, self.code = real, calls, code

    def __call__(self, *args: object, **more: object) -> object:
        self.left -= 1
        if self.left < 0:
            raise OSError(self.code, os.strerror(self.code))
        return self.real(*args, **more)  # type: ignore[operator]


@pytest.mark.parametrize("calls", [0, 5, 9])
@pytest.mark.parametrize("operation", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_survey(
    survey: Survey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operation: str, calls: int
) -> None:
    write_survey(survey, tmp_path)
    before = (tmp_path / "survey.json").read_bytes()
    changed = replace(survey, text=TextFacts("another.txt"))
    monkeypatch.setattr(os, operation, FullDisk(getattr(os, operation), calls))
    with pytest.raises(OutputError, match=r"the disk is full; free some space"):
        write_survey(changed, tmp_path)
    monkeypatch.undo()
    # From the journal on it is the new one, also where files could not be renamed.
    committed = operation == "replace" and calls > 0
    assert read_survey(tmp_path).text == (changed if committed else survey).text
    if not committed:
        assert (tmp_path / "survey.json").read_bytes() == before
    tidy(tmp_path)
    assert read_survey(tmp_path).text == (changed if committed else survey).text
    assert not [p for p in tmp_path.rglob("*") if p.name.endswith((".part", ".swap"))]


def test_survey_json_is_renamed_last(survey: Survey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    real = os.replace
    monkeypatch.setattr(os, "replace", lambda a, b: (order.append(Path(b).name), real(a, b)))
    write_survey(survey, tmp_path)
    # The journal is the moment; tables, survey.json and manifest.json follow.
    assert order[0] == JOURNAL
    assert order[-2:] == ["survey.json", "manifest.json"]
    assert "sphere.concentration.monte-carlo.csv" in order
    assert len(order) == 12


def test_tables_of_another_run_are_refused(survey: Survey, tmp_path: Path) -> None:
    write_survey(survey, tmp_path)
    table = tmp_path / "tables" / "sphere.plane.csv"
    table.write_text(table.read_text("utf-8", "surrogatepass").replace("16384", "16383"), "utf-8", "surrogatepass")
    with pytest.raises(OutputError, match=r"sphere\.plane\.csv is not the table"):
        read_survey(tmp_path)


def _change(folder: Path, key: str, value: object) -> None:
    record = json.loads((folder / "survey.json").read_text())
    (folder / "survey.json").write_text(json.dumps({**record, key: value}))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: (f / "survey.json").write_text("{"), "is not JSON"),
        (lambda f: (f / "survey.json").write_text("[]"), "not a survey"),
        (lambda f: (f / "survey.json").write_text('{"schema": 99}'), "has schema '99', this version reads 1, 2 and 3"),
        (lambda f: (f / "survey.json").write_text('{"schema": 1}'), "model is missing"),
        (
            lambda f: _change(f, "model", {"name": "x", "layers": "many"}),
            "model.layers is 'many', not a whole number",
        ),
        (lambda f: _change(f, "text", {}), "text.source is missing"),
        (lambda f: (f / "survey.json").unlink(), "has no survey.json"),
        (lambda f: (f / "tables" / "sphere.plane.csv").unlink(), r"sphere\.plane\.csv cannot be read"),
    ],
)
def test_what_cannot_be_read_says_so(survey: Survey, tmp_path: Path, damage: object, message: str) -> None:
    write_survey(survey, tmp_path)
    damage(tmp_path)  # type: ignore[operator]
    if (tmp_path / "survey.json").exists():
        sign(tmp_path)
    with pytest.raises(OutputError, match=message):
        read_survey(tmp_path)


def test_a_missing_folder_and_the_path_of_the_file_itself(survey: Survey, tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="there is no folder"):
        read_survey(tmp_path / "nowhere")
    assert len(read_survey(write_survey(survey, tmp_path))) == 8


def test_names_cannot_leave_the_folder(survey: Survey, tmp_path: Path) -> None:
    first = survey.findings[0]
    evil = replace(first, claim=replace(first.claim, id="../../evil"), more_tables={"../up": first.table})
    write_survey(replace(survey, findings=(evil,)), tmp_path / "in")
    written = [p for p in tmp_path.rglob("*") if p.is_file()]
    assert len(written) == 4
    assert all(p.is_relative_to(tmp_path / "in") for p in written)
    assert read_survey(tmp_path / "in").findings[0].id == "../../evil"


def test_check_writable(tmp_path: Path) -> None:
    assert check_writable(tmp_path / "a" / "b") == tmp_path / "a" / "b"
    assert list((tmp_path / "a" / "b").iterdir()) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="a file stands where a folder should be"):
        check_writable(tmp_path / "file")


def test_check_writable_without_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tempfile

    # Root may write anywhere, so the refusal is staged.
    monkeypatch.setattr(tempfile, "TemporaryFile", FullDisk(None, 0, errno.EACCES))
    with pytest.raises(OutputError, match="permission denied; choose a folder that you may write to"):
        check_writable(tmp_path)


def test_a_survey_keeps_the_version_that_measured_it(survey: Survey, tmp_path: Path) -> None:
    write_survey(replace(survey, version="0.1.9"), tmp_path)
    back = read_survey(tmp_path)
    assert back.version == "0.1.9" and '"armillary": "0.1.9"' in survey_json(back)


@pytest.mark.parametrize("version", ["../../../etc/passwd", "embedding", "-1"])
def test_what_is_no_version_is_refused(survey: Survey, tmp_path: Path, version: str) -> None:
    write_survey(replace(survey, version=version), tmp_path)
    with pytest.raises(OutputError, match="a version"):
        read_survey(tmp_path)


@pytest.mark.parametrize("value", ["1.0", True, [["2"]], {"x": 1}])
def test_a_number_that_is_none_is_refused_in_a_quantity(survey: Survey, tmp_path: Path, value: object) -> None:
    """NumPy would read the text '1.0' as a number."""
    write_survey(survey, tmp_path)
    record = json.loads((tmp_path / "survey.json").read_text())
    at, drawn = next((at, c["quantities"][0]) for at, c in enumerate(record["claims"]) if c["quantities"])
    drawn["values"][0] = value
    (tmp_path / "survey.json").write_text(json.dumps(record))
    sign(tmp_path)
    with pytest.raises(
        OutputError, match=rf"claims\[{at}\]\.quantities\[0\]\.values\[0\]\S* is .*, not a finite number"
    ):
        read_survey(tmp_path)


def test_a_law_that_fails_and_a_verdict_without_its_reason_are_refused(survey: Survey, tmp_path: Path) -> None:
    broken = replace(survey, laws=(LawCheck("norm", "Norm(x) is the module's output", 1.0, 1e-6, "L0.ln1"),))
    write_survey(broken, tmp_path / "law")
    with pytest.raises(OutputError, match=r"laws\[0\] is a law that fails by 1, beyond 1e-06"):
        read_survey(tmp_path / "law")
    failed = replace(survey.findings[0], verdict="undecided", why=Why.FAILED)
    write_survey(replace(survey, findings=(failed,)), tmp_path / "why")
    with pytest.raises(OutputError, match="has the verdict 'undecided' and the reason 'FAILED'"):
        read_survey(tmp_path / "why")


@pytest.mark.parametrize("version", [True, 1.0, "1", 2])
def test_a_manifest_of_another_schema_is_refused(survey: Survey, tmp_path: Path, version: object) -> None:
    write_survey(survey, tmp_path)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    (tmp_path / "manifest.json").write_text(json.dumps({**manifest, "schema": version}))
    with pytest.raises(OutputError, match="it is not a manifest of schema 1"):
        read_survey(tmp_path)
