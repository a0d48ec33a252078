"""How bench/report and bench/gpu write numbers and tables."""
import math


def number(x: float) -> str:
    """Three digits at least, as a reader has them."""
    return f"{x:,.0f}" if abs(x) >= 100 else f"{x:.1f}" if abs(x) >= 10 else f"{x:.2f}" if abs(x) >= 0.1 else f"{x:.3g}"


def percent(share: float | None) -> str:
    return "-" if share is None or math.isnan(share) else f"{100 * share:.0f} %"


def mean(values: list[float]) -> float:
    """The geometric one."""
    return math.exp(sum(math.log(v) for v in values) / len(values))


def table(head: list[str], rows: list[list]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)
