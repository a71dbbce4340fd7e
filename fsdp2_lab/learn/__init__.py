"""Exercises: predict a number, measure it, learn why it differs."""

from .chapter_01 import q01a, q01b, q01c, q01d
from .chapter_02 import q02a, q02b, q02c, q02d
from .chapter_13 import q13a, q13b, q13c, q13d
from .exercise import Exercise, Repair
from .exercises import q00, q03, q04, q05, q06, q07, q08

__all__ = [
    "Exercise",
    "Repair",
    "q00",
    "q01a",
    "q01b",
    "q01c",
    "q01d",
    "q02a",
    "q02b",
    "q02c",
    "q02d",
    "q03",
    "q04",
    "q05",
    "q06",
    "q07",
    "q08",
    "q13a",
    "q13b",
    "q13c",
    "q13d",
]
