"""How numbers are written, in every view and every sentence.

Three significant digits, four where three would hide the difference; fixed between 0.001 and 9999, scientific
outside; a number and its interval share their decimals. The minus sign is U+2212; exponents keep the ASCII hyphen.
"""

import math
from typing import Protocol

ABSENT = "–"


def number(value: float, digits: int = 3) -> str:
    """
    >>> [number(v) for v in (0.82345, 576.0, 1234.5, 2.0, 0.00012, 0.0, float("nan"))]
    ['0.823', '576', '1,234', '2', '1.20e-4', '0', '–']
    """
    if not math.isfinite(value):
        return _not_finite(value)
    if value == 0:
        return "0"
    if not _is_fixed(value):
        return _scientific(value)
    if float(value).is_integer():
        return _sign(f"{value:,.0f}")
    return _fixed(value, _decimals(value, digits))


def say(value: float, spec: str = ".3g") -> str:
    """A number for a sentence, formatted by `spec`, with the house's minus sign and exponent.

    >>> [say(-0.9612, ".2f"), say(-1.2e-7, ".2g"), say(-0.001, ".0%"), say(float("nan")), say(0.25, "+.2f")]
    ['−0.96', '−1.2e-7', '0%', '–', '+0.25']
    """
    if not math.isfinite(value):
        return _not_finite(value)
    mantissa, e, exponent = f"{value:{spec}}".partition("e")
    return _sign(mantissa) + e + (str(int(exponent)) if exponent else "")


def interval(value: float, low: float, high: float) -> str:
    """
    >>> interval(0.82345, 0.79012, 0.8512), interval(2.0, 2.0, 2.0), interval(0.5, float("nan"), 0.6)
    ('0.823 [0.790, 0.851]', '2', '0.500 [–, 0.600]')
    """
    return " ".join(part for part in interval_parts(value, low, high) if part)


class HasInterval(Protocol):
    """A statistic, a control, or any other number with an interval."""

    @property
    def value(self) -> float: ...
    @property
    def low(self) -> float: ...
    @property
    def high(self) -> float: ...


def interval_of(measured: HasInterval) -> str:
    """The same for a statistic or a control."""
    return interval(measured.value, measured.low, measured.high)


def interval_parts(value: float, low: float, high: float) -> tuple[str, str]:
    """The number and its bracket as two strings, for columns; the bracket is empty where there is no interval."""
    if (low == high == value) or (math.isnan(low) and math.isnan(high)):
        return number(value), ""
    finite = [v for v in (value, low, high) if math.isfinite(v)]
    if not any(finite) or not all(_is_fixed(v) or v == 0 for v in finite):
        return number(value), f"[{number(low)}, {number(high)}]"
    decimals = _decimals(max(finite, key=abs), 3)
    # 0.9997 [0.9996, 0.9998] must not be printed as 1.000 [1.000, 1.000], an interval that looks empty.
    while decimals < 6 and low != high and _fixed(low, decimals) == _fixed(high, decimals):
        decimals += 1
    shown = [_fixed(v, decimals) if math.isfinite(v) else number(v) for v in (value, low, high)]
    return shown[0], f"[{shown[1]}, {shown[2]}]"


def count(n: int) -> str:
    """
    >>> count(16384)
    '16,384'
    """
    return f"{n:,}"


def align(texts: list[str]) -> list[str]:
    """Numbers padded so that their decimal points are in one column.

    >>> align(["0.82", "12", "1.2e-7"])
    [' 0.82  ', '12     ', ' 1.2e-7']
    """
    split = [text.partition(".") for text in texts]
    before = max((len(head) for head, _, _ in split), default=0)
    after = max((len(dot + tail) for _, dot, tail in split), default=0)
    return [head.rjust(before) + (dot + tail).ljust(after) for head, dot, tail in split]


def _not_finite(value: float) -> str:
    return ABSENT if math.isnan(value) else "∞" if value > 0 else "−∞"


def _is_fixed(value: float) -> bool:
    return 0.001 <= abs(value) < 9999.5


def _decimals(value: float, digits: int) -> int:
    return max(0, digits - 1 - math.floor(math.log10(abs(value)))) if value else digits - 1


def _fixed(value: float, decimals: int) -> str:
    return _sign(f"{value:,.{decimals}f}")


def _scientific(value: float) -> str:
    mantissa, _, exponent = f"{value:.2e}".partition("e")
    return f"{_sign(mantissa)}e{int(exponent)}"


def _sign(text: str) -> str:
    """With U+2212, and no minus before zero."""
    if text.startswith("-"):
        return text[1:] if not text.strip("-0.,%") else "−" + text[1:]
    return text
