"""``make fuzz [TARGET=…] [SECONDS=…]``: coverage-guided fuzzing of one target, or of one after another, with atheris.

What it finds lies in ``fuzz-out/TARGET/findings/``; ``python tests/fuzz/run_fuzz.py TARGET --replay FILE`` runs one
again.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import subprocess
import sys
import time
import traceback
from pathlib import Path

from fuzz_kit import HERE, SECONDS, TARGETS, Target, hold, load_target, regressions

ROOT = HERE.parents[1]
OUT = ROOT / "fuzz-out"
PACKAGES = ["convert", "artifacts", "op_registry"]
MEMORY_MIB = 3072


def main() -> int:
    """Run what the command line asks for; 1 where something was found."""
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("target", nargs="?", choices=["all", *TARGETS], default="all")
    words.add_argument("--seconds", type=int, default=600, help="CPU seconds for each target")
    words.add_argument("--replay", type=Path, help="run one input, without atheris")
    words.add_argument("--out", type=Path, default=OUT, help="where corpus and findings lie")
    words.add_argument("--guided", action="store_true", help=argparse.SUPPRESS)
    given = words.parse_args()
    sys.path.insert(0, str(ROOT))
    if given.replay:
        return replay(given.target, given.replay)
    if given.guided:
        guided(given.target, given.seconds, given.out)
    names = TARGETS if given.target == "all" else (given.target,)
    return max(one(name, given.seconds, given.out) for name in names)


def replay(name: str, path: Path) -> int:
    """Run one input; a finding shows as the traceback that it is."""
    taken = hold(load_target(name), path.read_bytes())
    print(f"{name}: {path.name} was {'taken' if taken else 'refused'}")
    return 0


def one(name: str, seconds: int, out: Path) -> int:
    """Fuzz one target in a process of its own: a crash of native code ends that process alone."""
    begun = time.monotonic()
    command = [sys.executable, __file__, name, "--guided", "--seconds", str(seconds), "--out", str(out)]
    code = subprocess.run(command, check=False, cwd=ROOT).returncode
    found = sorted((out / name / "findings").glob("*"))
    print(f"{name}: {time.monotonic() - begun:.0f} s, {len(found)} findings", *found, sep="\n  ")
    return 1 if code or found else 0


def guided(name: str, seconds: int, out: Path) -> None:
    """Run atheris in this process; it does not return."""
    try:
        import atheris
    except ImportError:
        sys.exit("atheris is not installed: pip install 'model-convert[fuzz]' (Linux, CPython 3.11 to 3.13)")
    with atheris.instrument_imports(include=PACKAGES):
        target = load_target(name)
    corpus, findings = out / name / "corpus", out / name / "findings"
    for folder in (corpus, findings):
        folder.mkdir(parents=True, exist_ok=True)
    for title, data in {**target.seeds(), **target.more_seeds(), **regressions(name)}.items():
        (corpus / f"seed-{title}").write_bytes(data)
    words = out / name / "words.txt"
    words.write_text("".join(f'"{escaped(word)}"\n' for word in target.words[:2000]))
    arguments = [
        sys.argv[0],
        str(corpus),
        f"-artifact_prefix={findings}/",
        f"-dict={words}",
        f"-timeout={int(SECONDS) * 8}",
        f"-rss_limit_mb={MEMORY_MIB * 2}",
        f"-max_len={target.limit}",
        "-verbosity=1",
    ]

    def mutated(data: bytes, size: int, seed: int) -> bytes:
        chance = random.Random(seed)
        if chance.random() < 0.3:
            return bytes(atheris.Mutate(data, size))
        return target.mutate(data, chance)[:size]

    # What takes more than it may gets a MemoryError, as in a worker, instead of ending the run.
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_MIB << 20, resource.RLIM_INFINITY))
    atheris.Setup(arguments, Session(target, seconds, findings).run, custom_mutator=mutated)
    atheris.Fuzz()


def escaped(word: bytes) -> str:
    """A word as libFuzzer's dictionaries write it."""
    return "".join(f"\\x{byte:02x}" for byte in word)


class Session:
    """One guided run: it goes on after a finding, keeps one input for each place in the program, and ends in time."""

    def __init__(self, target: Target, seconds: float, findings: Path) -> None:
        self.target = target
        self.ends = time.process_time() + seconds
        self.seconds = seconds
        self.findings = findings
        self.executions = 0
        self.taken = 0
        self.places: set[str] = set()

    def run(self, data: bytes) -> None:
        """One input. Ends the process where the time is up."""
        self.executions += 1
        try:
            self.taken += len(data) <= self.target.limit and hold(self.target, data)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            place = place_of(error)
            if place not in self.places:
                self.places.add(place)
                (self.findings / place).write_bytes(data)
                traceback.print_exception(error)
        over = time.process_time() > self.ends
        if over or self.executions % 1000 == 0:
            (self.findings.parent / "figures.txt").write_text(self.figures())
        if over:
            print(self.figures(), end="", flush=True)
            os._exit(0)

    def figures(self) -> str:
        """What the run came to so far."""
        spent = self.seconds - max(0.0, self.ends - time.process_time())
        told = f"{self.executions} executions, {self.taken} taken, {len(self.places)} places with findings"
        return f"{self.target.name}: {spent:.0f} CPU seconds, {told}\n"


def place_of(error: BaseException) -> str:
    """Where in our packages an exception was raised, as a file name."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if Path(frame.filename).is_relative_to(ROOT)] or frames
    last = ours[-1]
    return f"{type(error).__name__}-{Path(last.filename).stem}-{last.name}-{last.lineno}".replace("<", "").replace(
        ">", ""
    )


if __name__ == "__main__":
    sys.exit(main())
