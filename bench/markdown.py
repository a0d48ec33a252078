"""Markdown numbers, paragraphs and tables for bench/report and bench/gpu."""
import math
import textwrap


def number(x: float) -> str:
    """At least two significant digits: no decimals from 100, one from 10, two from 0.1."""
    return f"{x:,.0f}" if abs(x) >= 100 else f"{x:.1f}" if abs(x) >= 10 else f"{x:.2f}" if abs(x) >= 0.1 else f"{x:.3g}"


def percent(share: float | None) -> str:
    return "-" if share is None or math.isnan(share) else f"{100 * share:.0f} %"


def mean(values: list[float]) -> float:
    """Geometric mean."""
    return math.exp(sum(math.log(v) for v in values) / len(values))


def paragraph(text: str) -> str:
    """Wrapped to 120 columns."""
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


def table(head: list[str], rows: list[list]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)
