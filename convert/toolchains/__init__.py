"""Vendor toolchains that pip can install: which exist, where they lie, and putting them there.

known.toml    the toolchains: packages, pins, licence, what has to be mended
known.py      that file, read
place.py      what is installed on this machine, and its interpreter
pythons.py    finding an interpreter of a given version by running it
install.py    making the environment, step by step, so that a stopped installation goes on
"""
