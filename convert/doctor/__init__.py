"""``convert doctor``: is this machine fit for a target, and what is in the way.

values      what is found and how bad it is
compat      which versions belong together (``data/compat.csv``, with sources)
machine     this program's own libraries, memory, disk
ascend      what Huawei's CANN needs beside it: driver, kernels of the chip, environment, torch_npu
others      the same for the other vendors
examine     all of it, for the vendors asked for
"""
