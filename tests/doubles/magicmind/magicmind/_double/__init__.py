"""The parts of the stand-in."""
