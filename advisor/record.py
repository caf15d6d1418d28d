"""Run records: one JSON line a run, what was done and what it really took.

``advisor validate`` reads them, ``advisor apply`` writes them. The format is public; README and measurements/README.md
describe it. A record is turned into the same :class:`~advisor.job.Job` that plans hold, so the same code predicts both.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from advisor.errors import InputError, explain_validation
from advisor.files import write_whole
from advisor.job import (
    Attention,
    Dtype,
    Job,
    Lora,
    LossKernel,
    Method,
    Offload,
    Precision,
    Quantization,
    StrategyName,
    Task,
    ZeroTuning,
)
from advisor.units import parse_size


class _Part(BaseModel):
    # Unknown fields are kept and named (RunRecord.unknown_fields), so that a newer record still reads, but a
    # misspelt field does not pass in silence.
    model_config = ConfigDict(frozen=True, extra="allow")


class RecordLora(_Part):
    """The adapter of a LoRA or QLoRA run."""

    rank: int = Field(default=16, ge=1)
    alpha: int = Field(default=32, ge=1)
    target_modules: str | tuple[str, ...] = "all-linear"
    dtype: Dtype = "fp32"


class RecordWorkload(_Part):
    """What was done. ``micro_batch_size`` is per GPU; ``precision`` "bf16-mixed" under ZeRO keeps fp32 masters."""

    task: Task
    method: Method | None = None
    precision: Precision = "bf16"
    load_dtype: Dtype = "bf16"
    micro_batch_size: int = Field(ge=1)
    sequence_length: int = Field(ge=1)
    max_new_tokens: int = Field(default=0, ge=0)
    gradient_checkpointing: bool = False
    gradient_accumulation_steps: int = Field(default=1, ge=1)
    optimizer: str = "adamw_torch"
    attention: Attention = "sdpa"
    quantization: Quantization | None = None
    bnb_4bit_quant_storage: Dtype | None = None
    lora: RecordLora | None = None
    loss_kernel: LossKernel = "plain"
    load_from: str | None = None  # where a checkpoint was read; None: random weights made in place


class RecordZero(_Part):
    """DeepSpeed's buffers, where a run set them; what is missing was DeepSpeed's default."""

    reduce_bucket_size: int | None = Field(default=None, ge=1)
    allgather_bucket_size: int | None = Field(default=None, ge=1)
    prefetch_bucket_size: int | None = Field(default=None, ge=0)
    param_persistence_threshold: int | None = Field(default=None, ge=0)
    max_live_parameters: int | None = Field(default=None, ge=0)
    max_reuse_distance: int | None = Field(default=None, ge=0)
    sub_group_size: int | None = Field(default=None, ge=1)
    overlap_comm: bool | None = None
    contiguous_gradients: bool | None = None
    pin_memory: bool | None = None


class RecordStrategy(_Part):
    """How it was placed. ``max_memory`` values are sizes with a unit ("6GiB") or bytes."""

    name: StrategyName
    gpus: int = Field(default=1, ge=0)
    nodes: int = Field(default=1, ge=1)
    offload_optimizer: Offload | None = None
    offload_param: Offload | None = None
    max_memory: dict[str, str | int] | None = None
    device_map: str | dict[str, int | str] | None = None
    alloc_conf: str | None = None
    load_from: str | None = None
    zero: RecordZero | None = None
    zero_optimizer: Literal["torch_adam", "deepspeed", "client"] = "torch_adam"
    zero_init: bool = True
    visible_gpus: int | None = Field(default=None, ge=0)  # cards that a process could see; None: all of the machine's


class Measurement(_Part):
    """What the run took: bytes and seconds, lists over GPUs. ``gpu_used`` is as NVML saw it, above the idle card.

    ``host_ram`` is the fall of the machine's available memory. ``step_seconds`` is one optimizer step.
    """

    outcome: Literal["ok", "oom", "failed"]
    gpu_allocated: tuple[int, ...] | None = None
    gpu_reserved: tuple[int, ...] | None = None
    gpu_used: tuple[int, ...] | None = None
    gpu_load_allocated: tuple[int, ...] | None = None
    runtime_overhead: int | None = None
    host_ram: int | None = None
    load_seconds: float | None = None
    step_seconds: float | None = None
    prefill_seconds: float | None = None
    decode_tokens_per_second: float | None = None
    wall_seconds: float | None = None
    parameters: int | None = None


class Prediction(_Part):
    """What was said before the run, without any correction by own runs: bytes of the fullest GPU, seconds, rates."""

    gpu_allocated: int | None = None
    gpu_used: int | None = None
    host_ram: int | None = None
    load_seconds: float | None = None
    step_seconds: float | None = None
    prefill_seconds: float | None = None
    decode_tokens_per_second: float | None = None


class RunRecord(_Part):
    """One run. ``gpu_memory_cap`` limited torch's allocator on each card (bytes, without the runtime's own)."""

    id: str = Field(min_length=1)
    model: str = Field(min_length=1)
    hardware: str = Field(min_length=1)
    gpu_memory_cap: int | None = Field(default=None, ge=1)
    workload: RecordWorkload
    strategy: RecordStrategy
    software: dict[str, str | None] = Field(default_factory=dict)
    measured: Measurement
    predicted: Prediction | None = None
    machine: str | None = None  # the node and its cards, where the run was applied; tells machines of one archive apart

    @property
    def unknown_fields(self) -> tuple[str, ...]:
        """Dotted names of fields that this version does not know and therefore ignored."""
        return tuple(_unknown(self, ""))

    @property
    def load_from(self) -> str | None:
        """The checkpoint that was read; None when random weights were made in place."""
        return self.workload.load_from or self.strategy.load_from

    def job(self) -> Job:
        """The run as a Job. Raises InputError when a size in ``max_memory`` has no unit."""
        work, how = self.workload, self.strategy
        tuning = how.zero.model_dump(include=set(RecordZero.model_fields), exclude_none=True) if how.zero else {}
        return Job(
            task=work.task,
            strategy=how.name,
            method=work.method or ("full" if work.task == "finetune" else None),
            precision=work.precision,
            load_dtype=work.load_dtype,
            micro_batch_size=work.micro_batch_size,
            sequence_length=work.sequence_length,
            max_new_tokens=work.max_new_tokens,
            gradient_checkpointing=work.gradient_checkpointing,
            gradient_accumulation_steps=work.gradient_accumulation_steps,
            optimizer=work.optimizer,
            attention=work.attention,
            quantization=work.quantization,
            bnb_4bit_quant_storage=work.bnb_4bit_quant_storage,
            lora=_lora(work),
            loss_kernel=work.loss_kernel,
            gpus=how.gpus,
            nodes=how.nodes,
            offload_optimizer=how.offload_optimizer,
            offload_param=how.offload_param,
            max_memory=None if how.max_memory is None else {k: _size(self.id, k, v) for k, v in how.max_memory.items()},
            device_map=how.device_map,
            expandable_segments="expandable_segments:true" in (how.alloc_conf or "").replace(" ", "").lower(),
            zero_optimizer=how.zero_optimizer,
            zero=ZeroTuning(**tuning),
            zero_init=how.zero_init,
        )

    def line(self) -> str:
        """The record as one JSON line, without what is not set."""
        return json.dumps(self.model_dump(mode="json", exclude_none=True))

    @classmethod
    def of(
        cls,
        job: Job,
        measured: Measurement,
        *,
        id: str,
        model: str,
        hardware: str,
        gpu_memory_cap: int | None = None,
        software: Mapping[str, str] | None = None,
        load_from: str | None = None,
        predicted: Prediction | None = None,
        machine: str | None = None,
    ) -> RunRecord:
        """The record of a job that ran: ``record.job()`` gives the same job back."""
        work = {name: getattr(job, name) for name in RecordWorkload.model_fields if hasattr(job, name)}
        work["lora"] = None if job.lora is None else RecordLora.model_validate(_fields(job.lora))
        work["load_from"] = load_from
        how = {name: getattr(job, name) for name in RecordStrategy.model_fields if hasattr(job, name)}
        how["max_memory"] = None if job.max_memory is None else dict(job.max_memory)
        how["device_map"] = dict(job.device_map) if isinstance(job.device_map, Mapping) else job.device_map
        how["zero"] = RecordZero.model_validate(_fields(job.zero)) if job.strategy in ("zero2", "zero3") else None
        how["visible_gpus"] = job.gpus // max(1, job.nodes)  # plans hide the others
        how["alloc_conf"] = "expandable_segments:True" if job.expandable_segments else None
        return cls(
            id=id,
            model=model,
            hardware=hardware,
            gpu_memory_cap=gpu_memory_cap,
            workload=RecordWorkload.model_validate(work),
            strategy=RecordStrategy.model_validate({"name": job.strategy, **how}),
            software=dict(software or {}),
            measured=measured,
            predicted=predicted,
            machine=machine,
        )


def read_records(path: Path) -> list[RunRecord]:
    """All records of a file. Raises InputError naming file, line and field for the first that is none."""
    return list(_records(path))


def append_record(record: RunRecord, path: Path) -> None:
    """Add one record to a file of records, whole or not at all. Raises InputError when the file holds anything else."""
    kept = [old.line() for old in _records(path)] if path.exists() else []
    write_whole(path, "".join(f"{line}\n" for line in [*kept, record.line()]))


def _records(path: Path) -> Iterator[RunRecord]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise InputError(str(path), f"cannot be read ({reason})", expected="a file of run records") from error
    # Only the newline separates records: JSON strings may hold the other characters splitlines() cuts at.
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        try:
            value = json.loads(line)
        except (json.JSONDecodeError, RecursionError) as error:
            reason = error.msg if isinstance(error, json.JSONDecodeError) else "nested too deep"
            raise InputError(where, f"is not JSON ({reason})", expected="one run record a line") from error
        if not isinstance(value, dict):
            raise InputError(where, "is no run record", found=type(value).__name__, expected="a JSON object")
        try:
            yield RunRecord.model_validate(value)
        except ValidationError as error:
            raise explain_validation(where, error) from error


def _unknown(part: BaseModel, prefix: str) -> Iterator[str]:
    yield from (f"{prefix}{name}" for name in part.model_extra or {})
    for name in type(part).model_fields:
        value = getattr(part, name)
        if isinstance(value, BaseModel):
            yield from _unknown(value, f"{prefix}{name}.")


def _lora(work: RecordWorkload) -> Lora | None:
    if work.method not in ("lora", "qlora"):
        return None
    given = work.lora or RecordLora()
    return Lora(rank=given.rank, alpha=given.alpha, target_modules=given.target_modules, dtype=given.dtype)


def _size(record: str, device: str, value: str | int) -> int:
    if isinstance(value, int):
        return value
    try:
        return parse_size(value)
    except ValueError as error:
        raise InputError(record, str(error), field=f"strategy.max_memory.{device}") from error


def _fields(value: Any) -> dict[str, Any]:
    names: Iterable[str] = value.__dataclass_fields__
    return {name: getattr(value, name) for name in names}
