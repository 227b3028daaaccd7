"""A real browser: Debian's chromium, driven by playwright; without either, the tests that need one are skipped."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = Path("/usr/bin/chromium")


@pytest.fixture(scope="module")
def browser(request: Any) -> Iterator[Any]:
    """The browser; a module's `FLAGS` are added to its command line."""
    sync_api = pytest.importorskip("playwright.sync_api")
    if not CHROMIUM.exists():
        pytest.skip(f"no {CHROMIUM}: apt-get install chromium")
    with sync_api.sync_playwright() as playwright:
        flags = getattr(request.module, "FLAGS", ())
        made = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox", *flags])
        yield made
        made.close()
