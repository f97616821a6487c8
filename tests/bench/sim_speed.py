"""How much faster than real time the simulator is: three brokers under a constant load, every check on, in one process.

    python tests/bench/sim_speed.py                    four loads, the median of three runs each
    python tests/bench/sim_speed.py --load 10x20 --profile
    python tests/bench/sim_speed.py --seeds 3000000..3000100     processor time of drawn seeds

A load of BxR is B batches a second of up to R records (half of that on average), each acknowledged by all of three replicas and read by a
reader and a group of two; B divided by 5 producers at most. No faults, for they make the load smaller; Kafka's default timeouts.
Counts this process's processor time of the load alone: without coming up, healing and the checks at the end.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import pstats
import statistics
import time
import warnings
from dataclasses import dataclass

from minikafka.sim.runner import run_seed
from minikafka.sim.swarm import Options
from minikafka.sim.world import World

LOADS = ("0x1", "2x20", "10x20", "40x20", "40x1")
PRODUCERS = 2
BENCH_SEED = 1


class TimedWorld(World):
    """Notes time, frames and acknowledged records of the load."""

    cpu_s = frames = acknowledged = 0.0
    profile: cProfile.Profile | None = None

    def _run(self, until: float) -> None:
        is_load = self.load_began_s > 0.0 and not self.is_healed
        if not is_load:
            super()._run(until)
            return
        frames, acknowledged, began = self.fabric.frames, self.workload.acknowledged, time.process_time()
        if self.profile is not None:
            self.profile.enable()
        super()._run(until)
        if self.profile is not None:
            self.profile.disable()
        self.cpu_s += time.process_time() - began
        self.frames += self.fabric.frames - frames
        self.acknowledged += self.workload.acknowledged - acknowledged


@dataclass(slots=True)
class Speed:
    """Of one load: simulated seconds in a second of the processor, and per simulated second frames and acknowledged records."""

    times: float
    frames: float
    records: float


def options(load: str, seconds: float) -> Options:
    """The world of a load."""
    batches, records = load.split("x")
    rate = float(batches)
    return Options(
        BENCH_SEED, partitions=3, duration_s=seconds, producers=PRODUCERS if rate else 0, readers=1, group_members=2,
        pace_s=PRODUCERS / rate if rate else 1.0, batch_records_max=int(records), value_bytes=100,
    )  # fmt: skip


def measure(load: str, seconds: float, profile: cProfile.Profile | None = None) -> Speed:
    """Play it once. Raises the violation, if there is one."""
    world = TimedWorld(options(load, seconds), [])
    world.profile = profile
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        outcome = world.run()
    if outcome.violation is not None:
        raise outcome.violation
    speed = Speed(seconds / world.cpu_s, world.frames / seconds, world.acknowledged / seconds)
    del world, outcome
    gc.collect()
    return speed


def measure_seeds(first: int, last: int) -> None:
    """Processor time of a drawn seed."""
    run_seed(first)
    gc.collect()
    gc.freeze()
    began = time.process_time()
    outcomes = [run_seed(seed) for seed in range(first, last)]
    cpu_s = time.process_time() - began
    simulated_s, frames = sum(o.simulated_s for o in outcomes), sum(o.frames for o in outcomes)
    print(f"{last - first} seeds: {1000 * cpu_s / (last - first):.1f} ms of processor a seed, {simulated_s / cpu_s:.0f} times real time,"
          f" {1e6 * cpu_s / frames:.0f} us a frame, {sum(o.violation is not None for o in outcomes)} violations")  # fmt: skip


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--load", action="append", help=f"BxR; default {', '.join(LOADS)}")
    parser.add_argument("--seconds", type=float, default=20.0, help="simulated seconds of load")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--profile", action="store_true", help="print where the time of the loads goes")
    parser.add_argument("--sort", default="tottime", help="of the profile")
    parser.add_argument("--seeds", help="A..B: drawn seeds instead")
    arguments = parser.parse_args()
    if arguments.seeds:
        first, last = arguments.seeds.split("..")
        measure_seeds(int(first), int(last))
        return
    measure("10x20", 2.0)
    gc.collect()
    gc.freeze()
    profile = cProfile.Profile() if arguments.profile else None
    print("batches/s x records   records/s   frames/s   times real time   us a frame")
    for load in arguments.load or LOADS:
        speeds = [measure(load, arguments.seconds, profile) for _ in range(arguments.repeat)]
        times = statistics.median(speed.times for speed in speeds)
        frames = speeds[0].frames
        print(f"{load:>19} {speeds[0].records:11.0f} {frames:10.0f} {times:17.0f} {1e6 / times / frames:12.1f}", flush=True)
    if profile is not None:
        pstats.Stats(profile).sort_stats(arguments.sort).print_stats(120)


if __name__ == "__main__":
    main()
