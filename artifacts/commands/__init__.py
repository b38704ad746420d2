"""The commands of ``artifacts``, one file each."""
