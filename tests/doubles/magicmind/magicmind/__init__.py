"""A strict stand-in for Cambricon MagicMind's Python package, written from public code that uses the real one.

Sources: Cambricon/magicmind_cloud buildin/python_common, the SDK's C++ samples (Jayce0625/Cambricon), dx111/mm_convert.
It refuses what those say, with their Status codes and texts; raises nothing; and writes a file that holds the ONNX
graph, which it runs with ONNX Runtime in the precision that was built for.

    MAGICMIND_DOUBLE_VERSION   1.7.0
    MAGICMIND_DOUBLE_DEVICES   how many cards (1)
    MAGICMIND_DOUBLE_ARCH      of the cards (mtp_372)
    MAGICMIND_DOUBLE_CLUSTERS  of the cards (8)
    MAGICMIND_DOUBLE_FAULT     wrong, hang, crash, flood, nofile, exit0, fusion, fusion-crash, names, sync, oom, noload
    MAGICMIND_DOUBLE_PIDS      a file for the process ids of ``hang``
"""
