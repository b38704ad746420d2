"""What a vendor's log means: cause, nodes and what to do, from tables of each vendor's messages."""

from convert.diagnosis.reading import read_log

__all__ = ["read_log"]
