"""A usual Trainer script with random tokens: nothing in it knows of advisor.

advisor apply plan.json -- docs/examples/train.py --model FOLDER_OR_CONFIG --output_dir out --max_steps 4
advisor apply plan.json --launcher deepspeed -- docs/examples/train.py … --deepspeed {deepspeed_config}
advisor apply plan.json --launcher accelerate -- docs/examples/train.py …
"""

from dataclasses import dataclass, field

import torch
import transformers


@dataclass
class Settings:
    model: str = field(metadata={"help": "a folder with a config.json; weights are made at random"})
    length: int = 128


class Tokens(torch.utils.data.Dataset):
    """Random rows, the same for every rank."""

    def __init__(self, vocabulary: int, length: int) -> None:
        self.rows = torch.randint(0, vocabulary, (64, length), generator=torch.Generator().manual_seed(0))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.rows[index], "labels": self.rows[index]}


def main() -> None:
    parser = transformers.HfArgumentParser((Settings, transformers.TrainingArguments))
    settings, arguments = parser.parse_args_into_dataclasses()
    arguments.report_to = []
    config = transformers.AutoConfig.from_pretrained(settings.model)
    model = transformers.AutoModelForCausalLM.from_config(config)
    trainer = transformers.Trainer(
        model=model, args=arguments, train_dataset=Tokens(config.get_text_config().vocab_size, settings.length)
    )
    result = trainer.train()
    engine = type(trainer.model_wrapped).__name__
    print(f"trained {result.global_step} steps on {arguments.world_size} ranks with {engine}", flush=True)


if __name__ == "__main__":
    main()
