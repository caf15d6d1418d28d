import os

import torch
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, Trainer, TrainingArguments


def main():
    model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-2-70b-hf", torch_dtype=torch.bfloat16)
    args = TrainingArguments("out", bf16=True, deepspeed="z3.json")
    Trainer(model=model, args=args).train()


if __name__ == "__main__":
    main()
