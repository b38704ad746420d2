"""What each vendor's toolchain takes: data with sources, and the questions asked of it.

    targets   cards and SoCs, families, aliases: ``find_target``, ``all_targets``
    vendors   the vendors and the versions of their toolchains
    support   one toolchain version's table: ``load_support``
    judge     a graph judged node by node: ``judge_model``
    opsets    the opset that suits a graph and a target best: ``best_opset``
    survey    a graph against many targets: the matrix, and coverage by toolchain version
    query     list, show and diff of the data
    overlay   this site's own rows, asked first
    learn     rows for the overlay, from an installed toolkit, a check report or a failed compile
    render    the tables as Markdown pages

Importing this package imports no onnx, onnxruntime or numpy; only judging a graph does.
"""
