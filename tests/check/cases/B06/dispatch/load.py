import torch
from accelerate import dispatch_model

model = dispatch_model(model, device_map={"a": 0, "b": "disk"})
