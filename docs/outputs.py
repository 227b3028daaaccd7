"""What do the examples print? This file runs those that pages quote, and writes their outputs into the pages.

    python docs/outputs.py [NAME …]        or `make docs-outputs`

A page quotes an example between two marks. `tests/test_examples.py` runs every example and compares: the words must be
the same, and numbers nearly, because machines round differently.
"""

import contextlib
import io
import re
import runpy
import sys
from pathlib import Path

DOCS = Path(__file__).parent
EXAMPLES = DOCS.parent / "examples"
BLOCK = re.compile(r"(<!-- output (\S+) -->\n```\n)(.*?)(```\n<!-- end -->)", re.DOTALL)


def quoted() -> dict[str, str]:
    """The output that pages show, by the example's path under examples/."""
    return {name: text for page in DOCS.glob("*.md") for _, name, text, _ in BLOCK.findall(page.read_text("utf-8"))}


def printed(name: str) -> str:
    """Run an example and return what it prints."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    return "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines())


def main() -> None:
    import torch

    torch.set_num_threads(1)
    wanted = sys.argv[1:]
    for page in sorted(DOCS.glob("*.md")):
        text = page.read_text("utf-8")

        def anew(match: re.Match[str]) -> str:
            start, name, _, end = match.groups()
            return match[0] if wanted and name not in wanted else f"{start}{printed(name)}{end}"

        page.write_text(BLOCK.sub(anew, text), "utf-8")


if __name__ == "__main__":
    main()
