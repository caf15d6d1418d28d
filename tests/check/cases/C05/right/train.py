import os

import torch
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, Trainer, TrainingArguments

args = TrainingArguments("out", bf16=True, deepspeed="z3.json")
model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-2-70b-hf", torch_dtype=torch.bfloat16)
Trainer(model=model, args=args).train()
