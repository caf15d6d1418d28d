"""Convert: a training checkpoint becomes a plain safetensors model folder, one tensor after the other.

ZeRO keeps a model as flat shards and pickles; whoever serves it wants named tensors in safetensors. The flow is in
``run``; where tensors come from in ``shards`` (DeepSpeed), ``folder`` (safetensors) and ``adapter`` (LoRA); what must
come out in ``target``.
"""
