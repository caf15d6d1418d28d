torchrun --nproc_per_node 4 finetune.py --bf16 True --output_dir o
