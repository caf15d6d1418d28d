import torch
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("m", torch_dtype=torch.float16, device_map="auto", max_memory={0: "24gib", "cpu": "64GiB"})
