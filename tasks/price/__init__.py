"""What a million inferences cost: a dated price table, the price that counts on a day, and a cost whose parts add up."""

from tasks.price.per_million import cost, usd_per_million
from tasks.price.table import find_quote, quotes

__all__ = ["cost", "find_quote", "quotes", "usd_per_million"]
