#!/bin/bash
export CUDA_DEVICE_MAX_CONNECTIONS=1
DISTRIBUTED_ARGS="
    --nproc_per_node 2 \
    --nnodes 1 \
    --master_port 6001
"
torchrun $DISTRIBUTED_ARGS finetune.py \
    --model_name_or_path Qwen/Qwen-7B \
    --bf16 True \
    --per_device_train_batch_size 2 \
    --use_lora \
    --deepspeed ds_config_zero2.json
