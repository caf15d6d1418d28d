import os

import torch
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, Trainer, TrainingArguments

args = TrainingArguments("out", deepspeed="ds_z3.json", bf16=True)
a = AutoModelForCausalLM.from_pretrained("mistralai/Mistral-7B-v0.1", device_map="auto", torch_dtype=torch.bfloat16)
b = AutoModelForCausalLM.from_pretrained("mistralai/Mistral-7B-v0.1", device_map={"": 0}, torch_dtype=torch.bfloat16)
c = AutoModelForCausalLM.from_pretrained("mistralai/Mistral-7B-v0.1", device_map=0, torch_dtype=torch.bfloat16)
d = AutoModelForCausalLM.from_pretrained(
    "mistralai/Mistral-7B-v0.1",
    device_map={"": int(os.environ["LOCAL_RANK"])},
    torch_dtype=torch.bfloat16,
)
