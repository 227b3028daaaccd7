"""A real browser: Debian's chromium, driven by playwright; without either, the tests that need one are skipped."""

import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from explored import Running

from armillary.results.store import write_survey

HERE = Path(__file__).parent
CHROMIUM = Path("/usr/bin/chromium")


@pytest.fixture(scope="module")
def browser(request: Any) -> Iterator[Any]:
    """The browser; a module's `FLAGS` are added to its command line."""
    sync_api = pytest.importorskip("playwright.sync_api")
    if not CHROMIUM.exists():
        pytest.skip(f"no {CHROMIUM}: apt-get install chromium")
    with sync_api.sync_playwright() as playwright:
        flags = getattr(request.module, "FLAGS", ())
        chromium = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox", *flags])
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Both built-in models, a survey and a study."""
    folder = tmp_path_factory.mktemp("survey")
    write_survey(runpy.run_path(str(HERE / "synthetic.py"))["synthetic_survey"](), folder / "made")
    lab = HERE.parents[1] / "docs" / "lab" / "norms"
    running = Running("builtin:gpt", "--survey", folder / "made", "--study", lab)
    yield running
    code, errors = running.stop()
    assert code == 0, errors
    assert "Traceback" not in errors
