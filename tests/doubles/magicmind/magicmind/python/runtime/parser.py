"""``from magicmind.python.runtime.parser import Parser``."""

from magicmind._double.network import Parser

__all__ = ["Parser"]
