import os

import torch
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, Trainer, TrainingArguments

args = TrainingArguments("out", bf16=True, deepspeed="z3.json")
model = AutoModelForCausalLM.from_pretrained("huggyllama/llama-7b", torch_dtype=torch.bfloat16)
trainer = Trainer(model=model, args=args)
trainer.train()
trainer.save_model("out")
