"""Marks and colours, the same in terminals, notebooks and pages."""

from dataclasses import dataclass

from armillary.results.claim import VERDICTS, Verdict

# Verdicts differ in shape as well as in colour; the colours are the same in both themes.
MARKS: dict[Verdict, str] = dict(zip(VERDICTS, "●◐✕○!", strict=True))
COLOURS: dict[Verdict, str] = {
    "supported": "#1B7F79",
    "qualified": "#C98A1B",
    "refuted": "#C2452D",
    "undecided": "#7A7F87",
    "failed": "#8A5BB5",
}
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', 'DejaVu Sans', sans-serif"


@dataclass(frozen=True)
class Palette:
    """The colours of a theme; both themes have the same fields, so that one figure serves both."""

    ground: str
    ink: str
    soft: str
    """Secondary text: subtitles, axis labels."""
    grid: str
    accent: str
    accent_band: str
    second: str
    second_band: str
    control: str


LIGHT = Palette(
    ground="#FBFAF7",
    ink="#1C2330",
    soft="#5A6270",
    grid="#E6E3DB",
    accent="#B8862B",
    accent_band="rgba(184,134,43,0.20)",
    second="#2C6E9B",
    second_band="rgba(44,110,155,0.18)",
    control="#6F757E",
)
# The second colour is lighter here: #2C6E9B has a contrast of 3.3 on this ground, too little for thin lines.
DARK = Palette(
    ground="#0E1420",
    ink="#E8E6DF",
    soft="#A4ABB8",
    grid="#222B3B",
    accent="#D0A04A",
    accent_band="rgba(208,160,74,0.24)",
    second="#6BAEDB",
    second_band="rgba(107,174,219,0.22)",
    control="#9AA1AC",
)
