"""What do the notebooks print? This file runs them and stores their outputs.

    python docs/notebooks.py [NAME …]        or `make docs-notebooks`

No Jupyter is needed: the code cells are run in order, in one namespace. `tests/test_site.py` runs them as well.
"""

import contextlib
import io
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent.parent / "examples" / "notebooks"


def run(path: Path) -> dict[str, Any]:
    """The notebook with what its cells print; an error in a cell is raised."""
    book: dict[str, Any] = json.loads(path.read_text("utf-8"))
    space: dict[str, Any] = {"__name__": "__main__"}
    home = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for number, cell in enumerate(book["cells"]):
                if cell["cell_type"] == "code":
                    code = compile("".join(cell["source"]), f"{path.name}, cell {number}", "exec")
                    with contextlib.redirect_stdout(io.StringIO()) as out:
                        exec(code, space)
                    cell["outputs"] = _stream(out.getvalue())
        finally:
            os.chdir(home)
    return book


def _stream(text: str) -> list[dict[str, Any]]:
    lines = "".join(f"{line.rstrip()}\n" for line in text.splitlines()).splitlines(keepends=True)
    return [{"name": "stdout", "output_type": "stream", "text": lines}] if lines else []


def main() -> None:
    import torch

    torch.set_num_threads(1)
    for path in sorted(FOLDER.glob("*.ipynb")):
        if not sys.argv[1:] or path.stem in sys.argv[1:]:
            path.write_text(json.dumps(run(path), indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
