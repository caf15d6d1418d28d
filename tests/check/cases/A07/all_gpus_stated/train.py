import torch
from peft import LoraConfig
from transformers import AutoModelForCausalLM, TrainingArguments
from trl import SFTTrainer

model = AutoModelForCausalLM.from_pretrained("mistralai/Mixtral-8x7B-v0.1", torch_dtype=torch.float16, device_map="auto")
trainer = SFTTrainer(model=model, args=TrainingArguments("out", fp16=True), peft_config=LoraConfig(r=8))
trainer.train()
