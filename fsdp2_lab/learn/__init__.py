"""Exercises: predict a number, measure it, learn why it differs."""

from .chapter_01 import q01a, q01b, q01c, q01d
from .exercise import Exercise
from .exercises import q00, q03, q04, q05, q06, q07, q08

__all__ = ["Exercise", "q00", "q01a", "q01b", "q01c", "q01d", "q03", "q04", "q05", "q06", "q07", "q08"]
