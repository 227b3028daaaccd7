"""Colours of a trajectory's picture, on light and on dark ground.

An SVG element has the light colour as an attribute, which every viewer understands, and a class that replaces it in
dark mode.
"""

from collections.abc import Mapping
from dataclasses import asdict

from armillary.results.sheets.trajectory import Trajectory
from armillary.views.figures.marks import DARK, LIGHT

# With more words than this, colour shows the layer instead of the word.
CATEGORIES = 8
# Okabe–Ito, with the ink for its black. Yellow is darker on light ground and the two deep colours are lighter on dark
# ground, for contrast.
_WORDS = (
    ("#0072B2", "#4BA3DB"),
    ("#D55E00", "#EC7B3C"),
    ("#009E73", "#21B78F"),
    ("#CC79A7", "#D998BC"),
    ("#E69F00", "#E69F00"),
    ("#56B4E9", "#8CCEF2"),
    (LIGHT.ink, DARK.ink),
    ("#A89600", "#F0E442"),
)
# Cividis from pale to deep on light ground, reversed on dark ground: late states stand out on both.
_CIVIDIS = (
    "#00224E",
    "#123570",
    "#3B496C",
    "#575D6D",
    "#707173",
    "#8A8678",
    "#A59C74",
    "#C3B369",
    "#E1CC55",
    "#FEE838",
)
_LAYERS = tuple(zip(reversed(_CIVIDIS[:8]), _CIVIDIS[2:], strict=True))
# Shades of the globe: lit from above, darker towards its edge.
_GLOBE = {"lit": ("#FFFFFF", "#1D2839"), "body": ("#F6F3EB", "#151E2D"), "edge": ("#E9E4D6", "#0B101A")}


def _inks() -> dict[str, tuple[str, str]]:
    dark = asdict(DARK)
    named = {name: (colour, dark[name]) for name, colour in asdict(LIGHT).items()}
    named |= {f"w{i}": pair for i, pair in enumerate(_WORDS)}
    return named | {f"l{i}": pair for i, pair in enumerate(_LAYERS)} | _GLOBE


INKS: Mapping[str, tuple[str, str]] = _inks()


def by_layer(trajectory: Trajectory) -> bool:
    return len(trajectory.drawn) > CATEGORIES


def ink(trajectory: Trajectory, word: int, step: int) -> str:
    """The name of the ink of a drawn word at a state or step."""
    if not by_layer(trajectory):
        return f"w{word}"
    return f"l{round(step / max(1, len(trajectory.states) - 1) * (len(_LAYERS) - 1))}"


def stroke(name: str) -> str:
    return f'class="s-{name}" stroke="{INKS[name][0]}"'


def fill(name: str) -> str:
    return f'class="f-{name}" fill="{INKS[name][0]}"'


def stop(name: str, at: float, opacity: float = 1) -> str:
    return f'<stop class="g-{name}" offset="{at}" stop-color="{INKS[name][0]}" stop-opacity="{opacity}"/>'


def dark_style() -> str:
    """The style sheet for dark mode."""
    rules = [
        f".s-{name}{{stroke:{dark}}}.f-{name}{{fill:{dark}}}.g-{name}{{stop-color:{dark}}}"
        for name, (light, dark) in INKS.items()
        if not name.endswith("band") and light != dark
    ]
    return f"<style>@media (prefers-color-scheme: dark){{{''.join(rules)}}}</style>"
