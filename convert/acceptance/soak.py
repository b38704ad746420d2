"""``convert soak``: the same inputs for hours, and the same outputs. It stops at the first that differs."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from convert.acceptance.session import Session
from convert.acceptance.speed import speed_of
from convert.acceptance.values import Accuracy, Pass, Soak
from convert.errors import UsageError
from convert.host import Worker

ROUND = 10.0
"""Seconds that a round is meant to take: what stops a soak between runs is looked at once a round."""
MOST = 2000
"""Runs of a round at most."""
DISK = 256 << 20
"""Bytes of inputs that a round may put on disk."""
EVERY = 30.0
"""Seconds between two words on how far it is."""
DURATION = re.compile(r"(?P<number>\d+(?:\.\d+)?)(?P<unit>s|min|m|h|d)?")
UNITS = {"s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def parse_duration(text: str) -> float:
    """``90s``, ``10m``, ``24h``, ``2d`` or plain seconds. Raises :class:`UsageError` CNV-2283."""
    match = DURATION.fullmatch(text.strip().lower())
    seconds = float(match["number"]) * UNITS[match["unit"] or "s"] if match else 0.0
    if not 0 < seconds <= 366 * 86400:
        raise UsageError("CNV-2283", f"{text!r} is no time", hint="write it like 90s, 10m, 24h or 2d")
    return seconds


@dataclass
class _State:
    """What the workers of a soak share."""

    deadline: float
    runs_left: int
    tell: Callable[[str], None]
    begun: float = field(default_factory=time.monotonic)
    lock: threading.Lock = field(default_factory=threading.Lock)
    stop: threading.Event = field(default_factory=threading.Event)
    passes: list[tuple[Pass, int]] = field(default_factory=list)
    first: tuple[Pass, int] | None = None
    last: tuple[Pass, int] | None = None
    runs: int = 0
    rounds: int = 0
    equal: int = 0
    told: float = 0.0
    worst: Pass | None = None
    broken: Pass | None = None
    broken_at: int = -1

    def take(self, wanted: int) -> int:
        """How many runs the next round has; 0: it is over."""
        with self.lock:
            if self.stop.is_set() or time.monotonic() >= self.deadline or self.runs_left == 0:
                return 0
            count = wanted if self.runs_left < 0 else min(wanted, self.runs_left)
            self.runs_left -= count if self.runs_left > 0 else 0
            return count

    def add(self, ran: Pass, memory: int) -> None:
        """Count a round."""
        with self.lock:
            self.first = self.first or (ran, memory)
            self.last = (ran, memory)
            self.rounds += 1
            self.equal += ran.equal
            if ran.broken >= 0 and self.broken is None:
                self.broken = ran
                self.broken_at = self.runs + ran.broken
                self.stop.set()
            self.runs += ran.runs
            if ran.worst and (self.worst is None or _error(ran) > _error(self.worst)):
                self.worst = ran
            now = time.monotonic()
            if now - self.told >= EVERY:
                self.told = now
                self.tell(f"{self.runs} runs in {now - self.begun:.0f} s, {self.equal} of them bit for bit the first")


def _error(ran: Pass) -> float:
    return max((output.rel_l2 or 0.0 for output in ran.worst), default=0.0)


def soak_artifact(
    session: Session,
    accuracy: Accuracy,
    *,
    seconds: float,
    runs: int = 0,
    workers: int = 1,
    tell: Callable[[str], None],
) -> Soak:
    """Run the inputs over and over, in ``workers`` processes at once, until the time is over, ``runs`` were done, or
    an output differs from the first one of its input beyond the gate.

    ``accuracy`` is of the first run, whose outputs the session keeps. Raises what running raises; an output that
    differs is no error here: it stands in the result.
    """
    begun = time.monotonic()
    state = _State(deadline=begun + seconds, runs_left=runs or -1, tell=tell, told=begun)
    with ThreadPoolExecutor(max_workers=workers) as pool:
        futures = [pool.submit(_work, session, state) for _ in range(workers)]
        try:
            wait(futures)
        except BaseException:
            # Ctrl-C: what runs is ended at once, so that nobody waits for a round.
            state.stop.set()
            session.shop.close()
            raise
    for future in futures:
        future.result()
    first, last = state.first, state.last
    return Soak(
        asked=seconds,
        seconds=time.monotonic() - begun,
        runs=state.runs,
        rounds=state.rounds,
        workers=workers,
        equal=state.equal,
        ran_on=accuracy.ran_on,
        device=accuracy.device,
        sampled=accuracy.sampled,
        samples=accuracy.samples,
        worst=state.worst.worst if state.worst else (),
        broken=state.broken_at,
        failures=state.broken.failures if state.broken else (),
        first=speed_of(first[0]) if first else None,
        last=speed_of(last[0]) if last else None,
        memory_first=first[1] if first else 0,
        memory_last=last[1] if last else 0,
    )


def _work(session: Session, state: _State) -> None:
    """Rounds of one worker, until it is over."""
    try:
        with session.shop.worker() as worker:
            count = session.samples
            while size := state.take(count):
                ran = _round(session, state, worker, size)
                count = _next_size(session, ran)
    finally:
        state.stop.set()


def _round(session: Session, state: _State, worker: Worker, size: int) -> Pass:
    ran, memory = session.run_measured(session.job(runs=size, warmup=1), worker)
    state.add(ran, memory)
    return ran


def _next_size(session: Session, ran: Pass) -> int:
    """Runs of the next round: as many as take ten seconds, in whole turns of the inputs."""
    turn = session.samples
    each = ran.seconds / max(1, ran.runs)
    fit = min(ROUND / each if each > 0 else MOST, MOST, DISK / max(1, session.prepared.sample_bytes))
    return max(1, int(fit) // turn) * turn
