"""The rules, one file per operator family. ``convert/lowering/table.py`` lists the files."""
