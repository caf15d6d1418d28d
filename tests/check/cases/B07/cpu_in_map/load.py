import torch
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

device_map = {"model.embed_tokens": 0, "model.layers.0": 0, "model.layers.1": "cpu", "model.norm": "cpu", "lm_head": 0}
model = AutoModelForCausalLM.from_pretrained(
    "meta-llama/Llama-2-7b-hf", quantization_config=BitsAndBytesConfig(load_in_8bit=True), device_map=device_map
)
