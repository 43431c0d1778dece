"""Which workloads there are."""

from __future__ import annotations

from benchmarks import fleet, growth, memory, recovery, speed
from benchmarks.subject import Workload, here

#: On every store, in each round.
EVERYWHERE: tuple[Workload, ...] = (
    here(speed.one_step),
    here(speed.sequential_steps),
    here(speed.runs_of_three),
    here(speed.signal),
    here(speed.parallel_steps),
    here(speed.loops),
    recovery.recovery,
)
#: On every store, once.
ONCE: tuple[Workload, ...] = (memory.parked, memory.evicted)
#: Where several processes share the work.
FLEET: tuple[Workload, ...] = (fleet.signal_across, fleet.two_processes)
#: There, once.
FLEET_ONCE: tuple[Workload, ...] = (growth.few_and_many,)
#: What other engines do, too, in this order.
COMPARED: tuple[Workload, ...] = (*EVERYWHERE[:5], recovery.recovery)
