"""The commands of ``convert``, one file each; imported when they are called."""
