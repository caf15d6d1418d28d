import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, Trainer, TrainingArguments

bnb = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16)
args = TrainingArguments(
    "out", bf16=True, fsdp="full_shard auto_wrap", per_device_train_batch_size=1, gradient_accumulation_steps=8
)
model = AutoModelForCausalLM.from_pretrained(
    "Qwen/Qwen2.5-72B-Instruct", quantization_config=bnb, torch_dtype=torch.bfloat16
)
model = get_peft_model(model, LoraConfig(r=16))
Trainer(model=model, args=args).train()
