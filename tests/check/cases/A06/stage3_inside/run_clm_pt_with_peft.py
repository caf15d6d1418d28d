import transformers
from transformers import HfArgumentParser, LlamaForCausalLM, Trainer, TrainingArguments


def main():
    parser = HfArgumentParser(TrainingArguments)
    (training_args,) = parser.parse_args_into_dataclasses()
    model = LlamaForCausalLM.from_pretrained("llama-7b", torch_dtype="auto", low_cpu_mem_usage=True)
    Trainer(model=model, args=training_args).train()


main()
