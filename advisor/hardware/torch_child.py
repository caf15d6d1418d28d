"""CUDA's own view of the cards, in a process of its own: where NVML fails, CUDA may still work.

Prints one line of JSON, cards in the shape of NVML's answers. The context that asking makes is in what a card has used,
so free memory is a little understated.
"""

from __future__ import annotations

import json
import sys


def main() -> None:
    """Ask torch and print."""
    import torch

    cards = []
    for index in range(torch.cuda.device_count()):
        device = torch.cuda.get_device_properties(index)
        free, total = torch.cuda.mem_get_info(index)
        uuid = getattr(device, "uuid", None)  # torch 2.4 up
        cards.append(
            {
                "index": index, "name": device.name, "uuid": f"GPU-{uuid}" if uuid else None,
                "capability": f"{device.major}.{device.minor}",
                "memory": {"total": total, "free": free, "used": total - free},
                # One chip with the host: its memory is the host's.
                "integrated": bool(getattr(device, "is_integrated", False)),
                "mig": False, "slices": [],
            }
        )  # fmt: skip
    sys.stdout.write(json.dumps({"hip": torch.version.hip, "cards": cards}) + "\n")


if __name__ == "__main__":
    main()
