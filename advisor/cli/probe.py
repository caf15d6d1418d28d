"""``advisor probe``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def probe(
    json_output: Annotated[bool, typer.Option("--json", help="Print the profile as JSON.")] = False,
    save: Annotated[Path | None, typer.Option("--save", help="Write the profile (JSON) for --hardware FILE.")] = None,
    measure: Annotated[bool, typer.Option("--measure", help="Run short tests of rates and runtime bytes.")] = False,
    record: Annotated[Path | None, typer.Option("--record", help="Keep the raw readings in this folder.")] = None,
    replay: Annotated[Path | None, typer.Option("--replay", help="Read from such a folder, not this machine.")] = None,
    hostfile: Annotated[
        Path | None, typer.Option("--hostfile", help="DeepSpeed's hostfile: probe each host by ssh and join them.")
    ] = None,
    merge: Annotated[
        bool, typer.Option("--merge", help="Join the profiles of nodes in FILES (- or none: JSON on stdin).")
    ] = False,
    files: Annotated[list[str] | None, typer.Argument(metavar="[FILES]...", help="With --merge: profiles.")] = None,
) -> None:
    """Show what this machine really has: memory that is free, links, software, and what would trip a run."""
    import os

    from advisor.errors import InputError
    from advisor.files import write_whole
    from advisor.hardware.probe import live
    from advisor.hardware.readings import Recorder, Replay

    if save and save.suffix != ".json":
        raise InputError("--save", "writes JSON", found=save.name, expected="a name that ends in .json")
    if replay and (measure or record):
        raise InputError("--replay", "cannot be joined with --measure or --record", expected="one of them")
    if files and not merge:
        raise InputError("FILES", "are for --merge", found=files[0], expected="advisor probe --merge FILES")
    if hostfile and merge:
        raise InputError("--hostfile", "cannot be joined with --merge", expected="one of them")
    if (hostfile or merge) and (replay or measure or record):
        raise InputError(
            "--hostfile and --merge", "join finished probes", expected="no --replay, --measure or --record"
        )
    # The driver takes its time: it is asked now, while the modules below load.
    here = None if replay or hostfile or merge else live()

    from advisor.hardware.merge import join, probe_hosts, read_hostfile, read_merged
    from advisor.hardware.probe import probe as read

    recorder = Recorder(here) if here and record else None
    if hostfile:
        machine = join(probe_hosts(read_hostfile(hostfile)))
    elif merge:
        machine = join(read_merged(files or ["-"]))
    else:
        machine = read(Replay.load(replay) if replay else recorder or here, here=replay is None)
    if recorder and record:
        recorder.save(record, "made by advisor probe --record on the machine itself")
    if measure:
        from advisor.report.machine import measured

        machine = measured(machine)
    # Tasks of one srun share their output: one line each stays whole.
    text = machine.model_dump_json(indent=None if "SLURM_PROCID" in os.environ else 2, exclude_none=True)
    if save:
        # Read later, perhaps elsewhere: then it is that machine, and no longer this one.
        kept = machine.model_copy(update={"name": save.stem, "here": False})
        write_whole(save, kept.model_dump_json(indent=2, exclude_none=True) + "\n")
    if json_output:
        typer.echo(text)
    else:
        from advisor.report.machine import show

        show(machine)
