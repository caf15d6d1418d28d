import os

import torch
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, Trainer, TrainingArguments

args = TrainingArguments("out", bf16=True, deepspeed="z2.json", per_device_train_batch_size=1, gradient_accumulation_steps=1)
model = AutoModelForCausalLM.from_pretrained("m", torch_dtype=torch.bfloat16)
Trainer(model=model, args=args).train()
