"""Armillary shows and measures the geometry of transformers.

import armillary
survey = armillary.survey("builtin:gpt", "my.txt")
print(survey)
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from armillary.edits import edited
    from armillary.health_check import health
    from armillary.laboratory import examine, train
    from armillary.results import Finding, Ledger, Survey
    from armillary.results.store import read_survey as read
    from armillary.run import load, survey
    from armillary.serve.start import explore
    from armillary.training.callback import GeometryCallback
    from armillary.training.health import HealthCallback

# Everything public is imported when first asked for, so that `armillary --help` and `armillary show` never pay
# for torch.
_HOMES = {
    "Finding": "armillary.results",
    "GeometryCallback": "armillary.training.callback",
    "HealthCallback": "armillary.training.health",
    "Ledger": "armillary.results",
    "Survey": "armillary.results",
    "edited": "armillary.edits",
    "examine": "armillary.laboratory",
    "health": "armillary.health_check",
    "explore": "armillary.serve.start",
    "load": "armillary.run",
    "read": "armillary.results.store",
    "survey": "armillary.run",
    "train": "armillary.laboratory",
}
__all__ = [
    "Finding",
    "GeometryCallback",
    "HealthCallback",
    "Ledger",
    "Survey",
    "__version__",
    "edited",
    "examine",
    "explore",
    "health",
    "load",
    "read",
    "survey",
    "train",
]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module 'armillary' has no attribute {name!r}")
    module = import_module(_HOMES[name])
    return getattr(module, "read_survey" if name == "read" else name)


def __dir__() -> list[str]:
    return sorted(__all__)
