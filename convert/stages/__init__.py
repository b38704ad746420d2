"""The stages, one file and one public function each; they run in worker processes."""
