"""Many surveys as one matrix: columns, marks, formats."""

import io
from dataclasses import replace

import pytest
from click.testing import CliRunner
from rich.console import Console

import armillary
from armillary.cli import main
from armillary.results.compare.matrix import Matrix
from armillary.views.compare.matrix import matrix_page, print_matrix


@pytest.fixture(scope="module")
def surveys(tmp_path_factory):
    home = tmp_path_factory.mktemp("surveys")
    survey = armillary.survey(
        "builtin:gpt", claims="sphere.radius,sphere.plane,rank.nullspace", quick=True, progress=False
    )
    other = {"sphere.plane": {"verdict": "refuted"}, "rank.nullspace": {"why": armillary.results.Why.NOT_APPLICABLE}}
    changed = tuple(replace(finding, **other.get(finding.id, {})) for finding in survey)
    changed = tuple(replace(f, verdict="undecided") if f.id == "rank.nullspace" else f for f in changed)
    for name, findings in {"gpt": survey.findings, "vit-0": changed, "vit-1": survey.findings}.items():
        replace(survey, findings=findings).save(home / name)
    return home


def test_training_runs_of_one_model_share_a_column(surveys):
    result = CliRunner().invoke(main, ["matrix", str(surveys)])
    assert result.exit_code == 0, result.output
    lines = {line.split()[0]: line for line in result.output.splitlines() if line.strip()}
    assert "gpt" in lines["gpt"]
    assert "vit" in lines["gpt"]
    assert "●    ●●" in lines["sphere.radius"]
    assert "●    ✕●" in lines["sphere.plane"]
    assert "–" in lines["rank.nullspace"]


def test_formats_say_verdicts_in_words(surveys):
    folders = [str(surveys / name) for name in ("gpt", "vit-0")]
    csv = CliRunner().invoke(main, ["matrix", *folders, "--format", "csv"]).output
    assert csv.splitlines()[0] == "claim,kind,gpt,vit-0"
    assert "sphere.plane,definition,supported,refuted" in csv
    assert "does not apply" in csv
    latex = CliRunner().invoke(main, ["matrix", *folders, "--format", "latex"]).output
    assert r"\begin{tabular}" in latex or r"\begin{longtable}" in latex
    markdown = CliRunner().invoke(main, ["matrix", *folders, "--format", "markdown"]).output
    assert "| sphere.plane | definition | supported | refuted |" in markdown.replace("\\", "")


def test_a_page_stands_alone_and_escapes_names(surveys, tmp_path):
    page = tmp_path / "kinds.html"
    result = CliRunner().invoke(main, ["matrix", str(surveys), "--out", str(page)])
    assert result.exit_code == 0, result.output
    text = page.read_text("utf-8")
    assert "<script" not in text
    assert "http://" not in text
    assert "aria-label='refuted, supported'" in text
    survey = armillary.results.store.read_survey(surveys / "gpt")
    assert "<b'" not in matrix_page(Matrix.of([survey], ["<b'onclick=1"]))


def test_many_columns_are_printed_in_parts(surveys):
    survey = armillary.results.store.read_survey(surveys / "gpt")
    matrix = Matrix.of([survey] * 30, [f"model{i}x" for i in range(30)])
    console = Console(width=60, record=True, file=io.StringIO())
    print_matrix(matrix, console)
    text = console.export_text()
    assert text.count("sphere.radius") >= 3
    assert max(map(len, text.splitlines())) <= 60


def test_what_cannot_be_drawn_is_refused(tmp_path):
    refused = CliRunner().invoke(main, ["matrix", str(tmp_path)])
    assert refused.exit_code != 0
    assert "holds no survey.json" in refused.output
    assert "choose one" in CliRunner().invoke(main, ["matrix", "x", "--out", "a.html", "--format", "csv"]).output
    assert "ends in '.png'" in CliRunner().invoke(main, ["matrix", "x", "--out", "a.png"]).output
