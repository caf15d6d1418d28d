pip install "torch>=2.10" transformers==4.57.1 deepspeed peft
torchrun --nproc_per_node 2 train.py
