"""READ FIRST: two graphs compared node by node, to find the first node whose output departs.

align    which value of one graph is which of the other: by name, else by structure and by numbers
departs  the errors of aligned values, and what of each was made there and what only passed on
segment  one piece of a graph, run on the other's exact inputs
dumps    tables and tensors that vendors' tools leave
"""
