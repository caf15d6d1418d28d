"""DeepSpeed ZeRO-2 and ZeRO-3: the engine's buffers laid over the traced step.

After DeepSpeed 0.19.8, runtime/zero/stage_1_and_2.py, stage3.py and partitioned_param_coordinator.py. With P parameters,
T trainable, N ranks, bytes on each card:

- weights: 2P (stage 2) or 2P/N (stage 3; none when offloaded), and, gathered, up to max_live_parameters of them;
- fp32 master weights and Adam's states: 12T/N unless the optimizer is offloaded;
- gradients: a reduce bucket (stage 3: from the start; stage 2: from the first gradient); partitions of 2T/N, made at the
  start (stage 3) or as buckets are reduced (stage 2); under stage 2 offload a buffer of the largest parameter instead, and
  that parameter in fp64 while its norm is taken (set_norm_for_param_grad_in_gpu);
- the step: fp32 gradients of the sub group (stage 2: of all), and torch's foreach AdamW makes as much again.
"""

from __future__ import annotations

from typing import Any

from advisor.hardware.profile import HardwareProfile
from advisor.job import Job
from advisor.memory.budget import Budget
from advisor.memory.engines.alike import budget_of_alike_ranks
from advisor.memory.engines.host import offload_host_ram
from advisor.memory.figures import figures, kept
from advisor.memory.single import is_hopper
from advisor.memory.timeline import Event, Timeline
from advisor.models.spec import ModelSpec


def budget_zero(model: ModelSpec, machine: HardwareProfile, job: Job) -> Budget:
    """The memory of ZeRO ``job`` on each card and in a node's RAM."""
    hopper = is_hopper(machine)

    def compute() -> Any:
        from advisor.memory.assemble import timeline

        line = timeline(model, job, optimizer=False, hopper=hopper)
        found = figures(tuple(_Overlay(line, job).events()), expandable=job.expandable_segments)
        found["parameters"] = sum(parameter.numel for parameter in line.parameters)
        found["trainable"] = sum(parameter.numel for parameter in line.parameters if parameter.trainable)
        return found

    found = kept(model, job, {"hopper": hopper}, compute)
    host, pinned = offload_host_ram(job, found["parameters"], found["trainable"])
    loading = 0 if job.zero_init else job.gpus // max(1, job.nodes) * 2 * found["parameters"]
    nvme = 0
    if job.offload_optimizer == "nvme":
        nvme += 16 * found["trainable"] // max(1, job.nodes)
    if job.offload_param == "nvme":
        nvme += 2 * found["parameters"] // max(1, job.nodes)
    return budget_of_alike_ranks(
        found, machine, job, host_ram=host, host_ram_load=host + loading, host_pinned=pinned, disk=nvme
    )


class _Overlay:
    """The events of one rank."""

    def __init__(self, line: Timeline, job: Job) -> None:
        self.line, self.job, self.zero = line, job, job.zero
        self.stage = 2 if job.strategy == "zero2" else 3
        trained = [parameter for parameter in line.parameters if parameter.trainable]
        self.total = sum(parameter.storage_bytes for parameter in line.parameters)
        self.numel = sum(parameter.numel for parameter in line.parameters)
        self.share = -(-sum(parameter.numel for parameter in trained) // job.world_size)
        self.largest = max((parameter.numel for parameter in trained), default=0)
        self._key = -1
        self.out: list[Event] = []

    def _alloc(self, size: int, part: str) -> Event | None:
        if size <= 0:
            return None
        self._key -= 1
        event = Event("alloc", self._key, size, part)
        self.out.append(event)
        return event

    def _free(self, event: Event | None) -> None:
        if event is not None:
            self.out.append(event._replace(kind="free"))

    def events(self) -> list[Event]:
        """Load, then the steps of the timeline with the engine's buffers."""
        job = self.job
        self.out.append(Event("phase", 0, 0, "load"))
        if self.stage == 2:
            self._alloc(self.total, "weights")
        elif job.offload_param is None:
            self._alloc(-(-self.total // job.world_size), "weights")
        if job.trains:
            self._states()
        gathered: Event | None = None
        bucket: Event | None = None
        if self.stage == 3 and job.trains:
            bucket = self._alloc(2 * self.zero.reduce_bucket_size, "buffers")
        ours: set[int] = set()
        for event in self.line.events:
            if event.kind == "phase":
                if event.part == "load":
                    continue
                if event.part == "step":
                    self.out.append(event)
                    self._free(gathered)
                    gathered = None
                    self._step(event.key, None if self.stage == 3 else bucket)
                    bucket = bucket if self.stage == 3 else None
                    continue
                self.out.append(event)
                if self.stage == 3 and gathered is None and (job.world_size > 1 or job.offload_param):
                    gathered = self._alloc(2 * min(self.numel, self.zero.max_live_parameters), "buffers")
            elif event.kind == "alloc" and event.part == "weights":
                ours.add(event.key)
            elif event.kind == "alloc" and event.part == "gradients":
                # Copied into the bucket and given back at once.
                if self.stage == 2 and bucket is None:
                    bucket = self._alloc(2 * self.zero.reduce_bucket_size, "buffers")
                ours.add(event.key)
                self.out += [event, event._replace(kind="free")]
            elif not (event.kind == "free" and event.key in ours):
                self.out.append(event)
        return self.out

    def _states(self) -> None:
        if self.job.offload_optimizer is None:
            self._alloc(4 * self.share, "optimizer")
            self._alloc(4 * self.share, "optimizer")
            self._alloc(4 * self.share, "optimizer")
            if self.stage == 3:
                self._alloc(2 * self.share, "gradients")
        elif self.stage == 2:
            self._alloc(2 * self.largest, "buffers")

    def _step(self, number: int, bucket: Event | None) -> None:
        job, foreach = self.job, self.job.steps_by_foreach
        if self.stage == 2 and job.offload_optimizer is not None:
            norm = self._alloc(8 * self.largest, "temporary")
            self._free(norm)
            self._free(bucket)
            return
        if self.stage == 2:
            averaged = self._alloc(2 * self.share, "gradients")
            self._free(bucket)
            flat = self._alloc(2 * self.share, "temporary")
            whole = self._alloc(4 * self.share, "gradients")
            self._free(averaged)
            self._free(flat)
            temporary = self._alloc(4 * self.share, "temporary") if foreach else None
            self._free(temporary)
            self._free(whole)
            return
        if job.offload_optimizer is None:
            group = min(self.share, self.zero.sub_group_size)
            whole = self._alloc(4 * group, "gradients")
            temporary = self._alloc(4 * group, "temporary") if foreach else None
            self._free(temporary)
            self._free(whole)


def plan_buckets(hidden_size: int) -> dict[str, int]:
    """Concrete bucket sizes, in elements, for a plan: accelerate's formulas of the hidden size (case A11)."""
    return {
        "reduce_bucket_size": hidden_size * hidden_size,
        "stage3_prefetch_bucket_size": int(0.9 * hidden_size * hidden_size),
        "stage3_param_persistence_threshold": 10 * hidden_size,
    }
