"""Which mark and which colour does a thing have, the same in the terminal, the notebook and the page?"""

from dataclasses import dataclass

from armillary.results.claim import Verdict

# Verdicts differ by shape first and by colour second; the colours are the same on both grounds.
MARKS: dict[Verdict, str] = {"supported": "●", "qualified": "◐", "refuted": "✕", "undecided": "○", "failed": "!"}
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
    """One ground with everything drawn on it; the two have the same fields, so one figure serves both."""

    ground: str
    ink: str
    soft: str
    """Second-rank text: subtitles, axis labels."""
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
# The second colour is lightened: #2C6E9B on the night ground has a contrast of 3.3, thin lines need more.
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
