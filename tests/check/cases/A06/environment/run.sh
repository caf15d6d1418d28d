export ACCELERATE_USE_DEEPSPEED=true
export ACCELERATE_DEEPSPEED_ZERO_STAGE=3
torchrun --nproc_per_node 2 train.py
