"""The ``magicmind`` backend: Cambricon MLU370 and MLU500 cards.

READ FIRST:

    versions       what is known of MagicMind by release; ``keys.toml``: the keys of the builder's configuration
    options        what ``--option`` takes, checked against the release
    cards          archs and clusters
    shapes         sizes and layouts in the builder's words
    planning       graph, target, options and toolchain → a plan (pure)
    child_job      the script of a plan: builds and runs in the SDK's own Python
    probing        the SDK's Python, MagicMind's version, the card
    outcome        whether a job did what it was told, and what it did
    running        an artifact on samples: through the script, or through mm_run (``mm_run``)
    backend        the class that puts these together
"""

from convert.backends.magicmind.backend import MagicmindBackend

__all__ = ["MagicmindBackend"]
