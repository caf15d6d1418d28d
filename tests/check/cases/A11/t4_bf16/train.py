import torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

args = TrainingArguments("out", bf16=True, deepspeed="z3.json")
model = AutoModelForCausalLM.from_pretrained("m", torch_dtype=torch.bfloat16)
Trainer(model=model, args=args).train()
