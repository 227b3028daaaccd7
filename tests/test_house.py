"""The rules of the house: which folder may import which, what stays light, and that everything is described."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import armillary

ROOT = Path(armillary.__file__).parent
LEAVES = {"geometry", "results"}
SEES_EVERYTHING = {"cli", "serve"}
FOLDERS = sorted(p.name for p in ROOT.iterdir() if (p / "__init__.py").exists())


def _imports(path: Path) -> list[tuple[str, bool]]:
    """(folder of ours, at module level?) for every import of ours in a file."""
    tree = ast.parse(path.read_text("utf-8"))
    outside = {id(node) for top in tree.body for node in ([top] if not isinstance(top, ast.If) else [])}
    found = []
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        found += [(n.split(".")[1], id(node) in outside) for n in names if n.startswith("armillary.")]
    return found


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_go_leftwards(path):
    parts = path.relative_to(ROOT).parts
    if len(parts) == 1 or parts[0] in SEES_EVERYTHING:
        return
    here = parts[0]
    for there, at_top in _imports(path):
        if there not in FOLDERS or there == here:
            continue
        if here in LEAVES:
            assert not at_top, f"{here} is a leaf and imports {there}"
            assert (here, there) == ("results", "views"), f"{here} imports {there}"
            continue
        assert there in LEAVES or there < here, f"{here} imports {there}, which comes after it"


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_every_module_says_what_it_answers(path):
    assert ast.get_docstring(ast.parse(path.read_text("utf-8"))), path


LONGEST = 50


def _length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function's body; a public function may have more lines of options and of documentation."""
    body = function.body[1:] if ast.get_docstring(function) else function.body
    return (function.end_lineno or 0) - body[0].lineno + 1 if body else 0


def test_functions_are_short():
    found = {
        (path.relative_to(ROOT).as_posix(), node.name)
        for path in ROOT.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _length(node) > LONGEST
    }
    assert not found, "shorten these functions"


def test_a_long_function_is_noticed():
    for lines, doc in ((50, ""), (51, ""), (50, '    """What it does.\n\n    More.\n    """\n')):
        (function,) = ast.parse("def f(\n    a,\n    b,\n):\n" + doc + "    a = b\n" * lines).body
        assert (_length(function) > LONGEST) == (lines == 51)


LIGHT = [
    "armillary",
    "armillary.cli",
    "armillary.probes",
    "armillary.views.text.survey",
    "armillary.results.store",
    "armillary.anatomy.loading.catalogue",
    "armillary.anatomy.loading.cache",
    "armillary.serve.app",
    "armillary.serve.start",
]


@pytest.mark.parametrize("module", LIGHT)
def test_light_modules_do_not_import_torch(module):
    code = f"import {module}, sys; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_help_and_show_never_import_torch(tmp_path):
    code = (
        "import sys; sys.argv = ['armillary', '--help']\n"
        "from armillary.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "sys.exit(any(m in sys.modules for m in ('torch', 'pandas', 'plotly', 'numpy')))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0
    assert "armillary survey" in done.stdout


def test_the_public_surface_is_small():
    nouns = ["Finding", "GeometryCallback", "HealthCallback", "Ledger", "Survey", "__version__"]
    verbs = ["edited", "examine", "explore", "health", "load", "read", "survey", "train"]
    assert sorted(armillary.__all__) == [*nouns, *verbs]
    assert all(getattr(armillary, name) is not None for name in armillary.__all__)
    with pytest.raises(AttributeError, match="no attribute 'lode'"):
        armillary.lode  # noqa: B018
