"""What holds for every test: seeded randomness, checked shapes in geometry and measures, one thread, long files first.

Tests are the same in every run. Set ARMILLARY_TEST_SEED to an integer to draw everything anew, Hypothesis's examples
included; a failing test prints the seed it ran with.
"""

import functools
import gc
import os
import random
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

# Tests are small and run beside others: threads on a busy machine wait for each other at every operation (measured:
# 14 s for a test that takes 0.2, and three times the CPU time for a survey). Libraries read these variables when they
# are loaded, here and in the processes that tests start: jaxtyping's plugin would load NumPy before (`addopts`).
os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))
# glibc returns every large buffer to the system, and the next pass fetches fresh pages for it: a twelfth of its time.
# It reads these variables when a process starts: in the workers of xdist, and in the processes that tests start.
os.environ.update({"MALLOC_MMAP_THRESHOLD_": str(64 << 20), "MALLOC_TRIM_THRESHOLD_": str(512 << 20)})
# A line of progress every 15 seconds would make what is printed depend on the machine.
os.environ["ARMILLARY_PROGRESS"] = "0"

import jaxtyping
import numpy as np
import pytest
import torch
from hypothesis import settings

# Shapes of arguments and results are checked in the first calls of a function in each test, then in calls 32, 64, 128 …
# To check every call took a twentieth of the time (7.9 and 7.5 s for the same 54 tests, twice).
FIRST_CALLS = 16
_calls: Counter[CodeType] = Counter()
_jaxtyped = jaxtyping.jaxtyped


def _sampled(**how: Any) -> Callable[[Any], Any]:
    """`jaxtyping.jaxtyped`, which the hook below puts on every function and class, for some calls of a function."""
    decorate = _jaxtyped(**how)

    def sampled(target: Any) -> Any:
        if not isinstance(target, FunctionType):
            return decorate(target)
        checked: Callable[..., Any] | None = None

        @functools.wraps(target)
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal checked
            number = _calls[target.__code__] = _calls[target.__code__] + 1
            if number > FIRST_CALLS and number & (number - 1):
                return target(*args, **kwargs)
            # A function inside another is made anew by every call of that one, and to prepare its checks takes long.
            if checked is None:
                checked = decorate(target)
            return checked(*args, **kwargs)

        return call

    return sampled


jaxtyping.jaxtyped = _sampled
jaxtyping.install_import_hook(["armillary.geometry", "armillary.measures"], "beartype.beartype")

torch.set_num_threads(1)

# What imports leave stays until the end. Looking through it for garbage again and again took a twelfth of the time.
gc.disable()

from armillary.anatomy import Anatomy  # noqa: E402 - the hook must come first
from armillary.flow import controls  # noqa: E402
from armillary.geometry import projection  # noqa: E402

# Untrained twins follow from a config and a seed, whatever the weights of the model beside them, so tests share them:
# to draw them anew took a sixth of the time of the chapters' tests. Those that ask how twins are drawn draw their own.
OWN_TWINS = frozenset("twins large_vocabulary swapped_models calibrate golden".split())
MOST_TWINS, LARGEST_TWIN = 60, 4 << 20
_draw = controls.random_twin
_twins: dict[Any, tuple[Anatomy, float]] = {}


def _shared_twin(anatomy: Anatomy, seed: int) -> Anatomy:
    model: Any = anatomy.model
    own = anatomy.encoder is not None or anatomy.signal is not None or hasattr(model, "swapped_by")
    if own or anatomy.weight_bytes > LARGEST_TWIN:
        return _draw(anatomy, seed)
    key = (anatomy.name, type(model), model.config.to_json_string(), seed, anatomy.dtype)
    if key in _twins:
        twin, total = _twins.pop(key)
        assert _total(twin) == total, f"a test changed a shared twin of {anatomy.name}"
    else:
        twin = _draw(anatomy, seed)
        total = _total(twin)
    _twins[key] = twin, total
    if len(_twins) > MOST_TWINS:
        del _twins[next(iter(_twins))]
    return twin


def _total(anatomy: Anatomy) -> float:
    """Changes whenever a weight does."""
    with torch.no_grad():
        return float(sum(p.double().square().sum() for p in anatomy.model.parameters()))


# A file is run by one worker, so that what its tests share is computed once. The longest begin, longest first, so that
# both workers end together; all others follow in their own order.
LONGEST = (
    "golden cli lab_study stability examples calibrate grid resume sphere filter second_c cluster attention_words "
    "second_b second_a others site second_e cli_lab lab_known shards travel health bench attention claims grid_flow "
    "lab_mimic crosscheck lab travel_view jobs"
).split()

VARIABLE = "ARMILLARY_TEST_SEED"
RUN_SEED = int(os.environ.get(VARIABLE, "0"))
SEEDED = f"random seed of this run: {RUN_SEED} (repeat it with {VARIABLE}={RUN_SEED})"

# A failing example is printed as a decorator that repeats it. No database: a run depends on its seed alone.
settings.register_profile("armillary", print_blob=True, database=None)
settings.load_profile("armillary")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    assert config.pluginmanager.is_blocked("jaxtyping"), "its plugin loads NumPy before its threads are limited"
    if config.getoption("--hypothesis-seed", None) is None:
        config.option.hypothesis_seed = str(RUN_SEED)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {f"test_{name}": place for place, name in enumerate(LONGEST)}
    assert all((Path(__file__).parent / f"{name}.py").exists() for name in places)
    items.sort(key=lambda item: places.get(item.path.stem, len(places)))


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)
    gc.enable()


def _find_without_extras(name: str) -> ModuleSpec | None:
    """What `find_spec` finds where pacmap and umap are not installed."""
    spec = find_spec(name)
    return None if name in ("pacmap", "umap") and spec is not None and spec.origin is not None else spec


def pytest_report_header() -> str:
    return SEEDED


# Without a GPU `torch.manual_seed` writes a traceback down for every kind of device, twice per test.
_seed_torch = torch.manual_seed if torch.cuda.is_available() else torch.default_generator.manual_seed


def _seed(name: str) -> None:
    """Global seeds from the run's seed and a name, so that no test depends on those before it."""
    _calls.clear()
    seed = zlib.crc32(f"{RUN_SEED} {name}".encode())
    random.seed(seed)
    np.random.seed(seed)
    _seed_torch(seed)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    # pacmap and umap come with the slow suite. Where they are installed, every survey of a fast test would draw words
    # with them too: half a minute of compilation per process, and findings that differ from one machine to the next.
    projection.find_spec = find_spec if item.get_closest_marker("slow") else _find_without_extras
    controls.random_twin = _draw if item.path.stem.removeprefix("test_") in OWN_TWINS else _shared_twin
    # By module: a fixture of the module is the same whichever test asks for it first.
    _seed(item.nodeid.split("::")[0])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    _seed(item.nodeid)


@pytest.fixture
def two_twins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two untrained models in place of five, where a test asks whether a probe can be asked, not what it decides.

    What is an array over twins with five is one with two, and their passes are most of what such a test takes.
    """
    monkeypatch.setattr(controls, "TWINS", ((float("inf"), 2),))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> Iterator[Any]:
    report = yield
    if report.failed:
        report.sections.append(("random seed", SEEDED))
    return report
