"""Speed and memory, as ratios of the same work done by the bare libraries, in one run."""
