import os

import torch
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, Trainer, TrainingArguments

args = TrainingArguments("out", bf16=True, deepspeed="zero2.json")
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-8B", torch_dtype=torch.bfloat16)
Trainer(model=model, args=args).train()
