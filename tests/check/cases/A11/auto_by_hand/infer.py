import torch
from transformers import AutoModelForCausalLM
from transformers.integrations import HfDeepSpeedConfig

ds_config = {"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 3}}
dschf = HfDeepSpeedConfig(ds_config)
model = AutoModelForCausalLM.from_pretrained("bigscience/T0_3B", torch_dtype=torch.bfloat16)
