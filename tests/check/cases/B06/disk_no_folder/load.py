import torch
from transformers import AutoModelForCausalLM

device_map = {"model.embed_tokens": 0, "model.layers": 0, "model.norm": "disk", "lm_head": "disk"}
model = AutoModelForCausalLM.from_pretrained("lmsys/vicuna-13b-v1.3", torch_dtype=torch.float16, device_map=device_map)
