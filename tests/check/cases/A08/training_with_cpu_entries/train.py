import os

import torch
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, Trainer, TrainingArguments

bnb = BitsAndBytesConfig(load_in_8bit=True)
args = TrainingArguments("out", fp16=True, per_device_train_batch_size=1)
model = AutoModelForCausalLM.from_pretrained("EleutherAI/gpt-j-6b", quantization_config=bnb, device_map={"transformer": 0, "lm_head": 0, "transformer.h.27": "cpu"})
Trainer(model=model, args=args).train()
