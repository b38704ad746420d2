"""Work on one model that is split over machines; data passes through the registry and nowhere else.

graphs    the graph of a model, with samples and reference outputs, stored where every machine can fetch it
targets   a target from such a graph: what a machine with the toolkit does
devices   a published artifact measured on its card, the result attached: what a machine with the card does
"""
