import torch
from transformers import AutoModelForVision2Seq, Trainer, TrainingArguments

args = TrainingArguments("out", bf16=True, deepspeed="z3.json")
model = AutoModelForVision2Seq.from_pretrained("HuggingFaceM4/idefics2-8b", torch_dtype=torch.bfloat16)
Trainer(model=model, args=args).train()
