accelerate launch --config_file ds_zero3_cpu.yaml train.py
