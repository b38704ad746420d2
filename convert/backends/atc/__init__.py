"""The ``atc`` backend: Huawei's ATC of CANN 5.1 to 9.2, in parts.

backend.py     READ FIRST: the protocol, one short method per question
find.py        where a CANN is and which version; what its programs need in their environment
probe.py       what an installed CANN says of itself: flags, card, Python packages
card.py        npu-smi in all its shapes
flags.py       the flag table (flags.toml), and what is wrong with a set of flags
soc.py         the exact SoC of a target
shapes.py      static, stepped and ranged shapes, and what a chip refuses
precision.py   precision modes, and the nodes that keep theirs
aipp.py        ``--preprocess`` as an AIPP configuration
plan.py        all of it as an argument list
compiling.py   running the plan; success by three signs
precheck.py    ``--mode=3``: every operator that this toolkit refuses
feeding.py     samples as the artifact takes them
running.py     an artifact on the card: pyACL, or ais_bench
device_run.py  the script that the toolkit's own interpreter runs; it stands alone
ais_bench.py   what ais_bench takes and says
"""

from convert.backends.atc.backend import AtcBackend

__all__ = ["AtcBackend"]
