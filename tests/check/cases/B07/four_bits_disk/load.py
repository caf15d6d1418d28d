import torch
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained(
    "meta-llama/Llama-2-7b-hf", load_in_4bit=True, device_map={"model": 0, "model.norm": "disk"}, offload_folder="o"
)
