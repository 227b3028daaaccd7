"""The rules of the house: which folder may import which, what stays light, and that everything is described."""

import ast
import functools
import re
import subprocess
import sys
from pathlib import Path

import pytest

import armillary

ROOT = Path(armillary.__file__).parent
LEAVES = {"geometry", "results"}
SEES_EVERYTHING = {"cli", "serve"}
FILES = sorted(ROOT.rglob("*.py"))
FOLDERS = sorted(p.name for p in ROOT.iterdir() if (p / "__init__.py").exists())


@functools.cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def _imports(tree: ast.Module) -> list[tuple[str, bool]]:
    """(folder of ours, at module level?) for every import of ours in a file."""
    outside = {id(node) for top in tree.body for node in ([top] if not isinstance(top, ast.If) else [])}
    imported = []
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        imported += [(n.split(".")[1], id(node) in outside) for n in names if n.startswith("armillary.")]
    return imported


def _wrong_imports(place: str, tree: ast.Module) -> list[str]:
    """What a file may not import: folders after its own, and what a leaf must do without."""
    here, _, name = place.partition("/")
    if not name or here in SEES_EVERYTHING:
        return []
    wrong = []
    for there, at_top in _imports(tree):
        if there not in FOLDERS or there == here:
            continue
        if here in LEAVES:
            allowed = not at_top and (here, there) == ("results", "views")
        else:
            allowed = there in LEAVES or there < here
        if not allowed:
            wrong.append(f"{place} imports {there}")
    return wrong


def test_imports_go_leftwards():
    places = {path.relative_to(ROOT).as_posix(): path for path in FILES}
    assert not [wrong for place, path in places.items() for wrong in _wrong_imports(place, _tree(path))]


@pytest.mark.parametrize(
    ("place", "source", "wrong"),
    [
        ("flow/a.py", "from armillary.anatomy import norm", False),
        ("flow/a.py", "import armillary.results.store", False),
        ("flow/a.py", "from armillary.views.page import page", True),
        ("flow/a.py", "def f():\n    import armillary.views.page", True),
        ("geometry/a.py", "from armillary.anatomy import norm", True),
        ("geometry/a.py", "def f():\n    from armillary.views.page import page", True),
        ("results/a.py", "from armillary.views.page import page", True),
        ("results/a.py", "def f():\n    from armillary.views.page import page", False),
        ("serve/a.py", "from armillary.views.page import page", False),
    ],
)
def test_an_import_to_the_right_is_noticed(place, source, wrong):
    assert bool(_wrong_imports(place, ast.parse(source))) == wrong


def test_every_module_says_what_it_answers():
    assert not [str(path) for path in FILES if not ast.get_docstring(_tree(path))]


LONGEST = 50


def _length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function's body; a public function may have more lines of options and of documentation."""
    body = function.body[1:] if ast.get_docstring(function) else function.body
    return (function.end_lineno or 0) - body[0].lineno + 1 if body else 0


def test_functions_are_short():
    too_long = {
        (path.relative_to(ROOT).as_posix(), node.name)
        for path in FILES
        for node in ast.walk(_tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _length(node) > LONGEST
    }
    assert not too_long, "shorten these functions"


def test_a_long_function_is_noticed():
    for lines, doc in ((50, ""), (51, ""), (50, '    """What it does.\n\n    More.\n    """\n')):
        (function,) = ast.parse("def f(\n    a,\n    b,\n):\n" + doc + "    a = b\n" * lines).body
        assert (_length(function) > LONGEST) == (lines == 51)


# What a name must say is what the value is. These say only that there is one.
SILENT = frozenset("made found told said one kept thing stuff".split())
# Names that users write.
WRITTEN_BY_USERS = {("armillary/edits/ablate.py", "kept")}


def _silent(source: str) -> list[tuple[int, str]]:
    """(line, name) of variables, parameters, fields and functions whose name does not say what they hold."""
    names: list[tuple[int, str | None]] = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case (
                ast.Name(id=name, ctx=ast.Store())
                | ast.Attribute(attr=name, value=ast.Name(id="self"), ctx=ast.Store())
            ):
                names.append((node.lineno, name))
            case ast.arg(arg=name) | ast.FunctionDef(name=name) | ast.ExceptHandler(name=name):
                names.append((node.lineno, name))
    return sorted((line, name) for line, name in names if name in SILENT)


def test_names_say_what_they_hold():
    silent = [
        f"{place}:{line}: {name}"
        for folder in (ROOT, Path(__file__).parent)
        for path in sorted(folder.rglob("*.py"))
        for place in [path.relative_to(folder.parent).as_posix()]
        for line, name in _silent(path.read_text("utf-8"))
        if (place, name) not in WRITTEN_BY_USERS
    ]
    assert not silent, "name these by what they hold: rows, survey, message, …"


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("made = 1", "made"),
        ("a, (b, *kept) = 1, (2, 3)", "kept"),
        ("for one in range(3): pass", "one"),
        ("[one for one in range(3)]", "one"),
        ("if (found := 1): pass", "found"),
        ("with open('f') as told: pass", "told"),
        ("said: str = ''", "said"),
        ("def f(a, *, said=None): pass", "said"),
        ("f = lambda found: found", "found"),
        ("def told(): pass", "told"),
        ("try: pass\nexcept ValueError as said: pass", "said"),
        ("class A:\n    kept: int = 0", "kept"),
        ("class A:\n    def f(self): self.thing = 1", "thing"),
    ],
)
def test_a_name_that_says_nothing_is_noticed(source, name):
    assert [silent for _, silent in _silent(source)] == [name]
    assert not _silent(re.sub(rf"\b{name}\b", "rows", source))


MOST_FILES = 13
# A command's file is named for the command, a room's for what the page calls it: both are what the user types or reads.
NAMED_BY_USERS = {"cli", "serve/rooms"}
# One noun in several forms, measured, stored or shown; every other name stands for one file.
ONE_NOUN = {
    "__init__": "Python's name for a folder",
    "anatomy": "a model in canonical form, and its text",
    "changes": "what changed between two surveys, and its text",
    "health": "a model's health: lines, text, page, and the check during training",
    "lab_claims": "the claims that the laboratory decides, and their text",
    "ledger": "a survey's ledger in a terminal and in a page",
    "matrix": "a matrix of surveys, and its views",
    "patch_maps": "largest activations on images: measured, stored, drawn",
    "schematic": "a circle of directions through norm and head: computed, stored, drawn",
    "sheet": "a table or picture that belongs to no claim, and its views",
    "similarity": "the likeness of two models' representations: measured, stored",
    "study": "a study of the laboratory as text, figure and page",
    "survey": "a survey, and its text",
    "trajectory": "the trajectory of one sentence: measured, stored",
}


def _folders(root: Path) -> dict[str, list[str]]:
    """Folder → the names of its Python files."""
    names: dict[str, list[str]] = {}
    for path in sorted(root.rglob("*.py")):
        names.setdefault(path.parent.relative_to(root).as_posix(), []).append(path.stem)
    return names


def _crowded(folders: dict[str, list[str]]) -> dict[str, int]:
    return {folder: len(names) for folder, names in folders.items() if len(names) > MOST_FILES}


def _ambiguous(folders: dict[str, list[str]]) -> dict[str, list[str]]:
    """File name → its folders, where one name stands for several files without one noun."""
    homes: dict[str, list[str]] = {}
    for folder, names in folders.items():
        for name in names if folder not in NAMED_BY_USERS else ():
            homes.setdefault(name, []).append(folder)
    return {name: where for name, where in homes.items() if len(where) > 1 and name not in ONE_NOUN}


def _repeated_classes(sources: dict[str, str]) -> dict[str, list[str]]:
    """Class name → the files that define it, where several do."""
    homes: dict[str, list[str]] = {}
    for path, source in sources.items():
        for node in ast.parse(source).body:
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(path)
    return {name: where for name, where in homes.items() if len(where) > 1}


def test_a_folder_has_about_a_dozen_files():
    assert not _crowded(_folders(ROOT)), "give these folders rooms, each with its question"


def test_a_file_name_means_one_thing():
    folders = _folders(ROOT)
    assert not _ambiguous(folders), "name these files for what they hold"
    names = [name for folder, stems in folders.items() if folder not in NAMED_BY_USERS for name in stems]
    assert not [name for name in ONE_NOUN if names.count(name) < 2], "these need no exception any more"


def test_a_class_name_means_one_thing():
    sources = {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in ROOT.rglob("*.py")}
    assert not _repeated_classes(sources), "name these classes by their role"


def test_crowds_and_namesakes_are_noticed(tmp_path):
    for number in range(MOST_FILES):
        path = tmp_path / "views" / f"file{number}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text("", "utf-8")
    assert not _crowded(_folders(tmp_path))
    (tmp_path / "views" / "ledger.py").write_text("class Row:\n    pass\n", "utf-8")
    assert _crowded(_folders(tmp_path)) == {"views": MOST_FILES + 1}
    for folder, name in (("flow", "file3.py"), ("cli", "file4.py"), ("flow", "ledger.py")):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / name).write_text("class Row:\n    pass\n", "utf-8")
    assert _ambiguous(_folders(tmp_path)) == {"file3": ["flow", "views"]}
    narrow, wide = "class Row:\n    pass\n", "class Row:\n    width: int\n"
    assert _repeated_classes({"a.py": narrow, "b.py": "class Line:\n    pass\n"}) == {}
    assert _repeated_classes({"a.py": narrow, "b.py": wide}) == {"Row": ["a.py", "b.py"]}


# Characters of a body from which on it is a definition, and not a call.
A_DEFINITION = 48


def _written_twice(sources: dict[str, str]) -> list[list[str]]:
    """Functions of modules that have the same parameters and the same body, whatever they are called."""
    homes: dict[str, list[str]] = {}
    for path, source in sources.items():
        for node in ast.parse(source).body:
            if isinstance(node, ast.FunctionDef):
                body = node.body[1:] if ast.get_docstring(node) else node.body
                names = [arg.arg for arg in ast.walk(node.args) if isinstance(arg, ast.arg)]
                text = "\n".join(map(ast.unparse, body))
                if len(text) >= A_DEFINITION:
                    homes.setdefault(f"{names}\n{text}", []).append(f"{path}: {node.name}")
    return [where for where in homes.values() if len(where) > 1]


def test_a_function_is_written_once():
    sources = {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in ROOT.rglob("*.py")}
    assert not _written_twice(sources), "one of each group serves all"


def test_a_function_that_is_written_twice_is_noticed():
    body = "    value, low, high = values.tolist()\n    return value, low, high\n"
    first = f"def triple(values: Floats) -> Interval:\n    '''Three.'''\n{body}"
    assert _written_twice({"a.py": first, "b.py": f"def _three(values):\n{body}"}) == [["a.py: triple", "b.py: _three"]]
    assert not _written_twice({"a.py": first, "b.py": f"def _three(rows):\n{body.replace('values', 'rows[0]')}"})


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
