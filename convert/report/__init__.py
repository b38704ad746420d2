"""The report of a conversion: one self-contained HTML page, and tables for a terminal."""
