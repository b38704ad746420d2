"""Handoff: a conversion goes on where the toolchain is, on another machine, and comes back.

bundle     what ``bundle.json`` holds, and how it is read from a stranger
archive    the bundle as one tar: written the same for the same content, unpacked safely
writing    the bundle of one target, from the values of its run
script     ``compile.sh``; what it must know of each toolkit stands in ``toolkits``
verify     the script that travels along and compares outputs; numpy is all it needs
measured   outputs of a device, read as a run
resume     from a bundle that came back to a published artifact
"""
