"""Axes with one look: notebook width, quiet spines, a title that says how the numbers were got."""

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

WIDTH_INCHES = 7.4


def canvas(columns: int = 1, height: float = 2.8, rows: int = 1) -> tuple[Figure, list[Axes]]:
    """A figure of notebook width with axes side by side, row after row, not yet shown."""
    figure, axes = plt.subplots(rows, columns, figsize=(WIDTH_INCHES, height), layout="constrained", squeeze=False)
    plt.close(figure)  # the cell shows what it returns; pyplot would show it a second time
    figure.set_dpi(110)
    for ax in axes.flat:
        ax.spines[["top", "right"]].set_visible(False)
    return figure, list(axes.flat)


def title(ax: Axes, text: str, how: str) -> None:
    ax.set_title(f"{text}\n{how}", loc="left", fontsize=10)
