"""GRPO with TRL on a CPU: a tiny, randomly initialised model learns which kernels the judge credits.

    pip install 'kbenv[trl]' && python examples/grpo_trl.py --steps 200 --curve curve.svg

A model that can write kernels does not fit here, so this one's words are whole answers: the recorded ones to two of
kbenv's problems, right and wrong, slow and fast. It sees a problem's name and says one of them. All else is what it
would be for a real model: TRL's trainer, kbenv's reward function, the judge with its clock. For a real one, make the
dataset with `kbenv.adapters.trl.make_rows` and name the model.
"""

import argparse
from pathlib import Path

from datasets import Dataset
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast, set_seed
from trl import GRPOConfig, GRPOTrainer

import kbenv
from kbenv.adapters.trl import make_reward_func

FOLDER = Path(__file__).parent / "replay"
ANSWERS = {
    "core/level1/relu": ["identity", "typo", "operators", "c_scalar", "c_parallel"],
    "core/level1/softmax": ["half", "wrong_axis", "operators", "c_fused"],
}


def make_tokenizer() -> PreTrainedTokenizerFast:
    """One token for each problem's name and for each whole answer."""
    answers = [
        (FOLDER / problem / f"{name}.md").read_text(encoding="utf-8")
        for problem, names in ANSWERS.items()
        for name in names
    ]
    words = ["<pad>", "<eos>", *ANSWERS, *answers]
    tokenizer = Tokenizer(WordLevel({word: number for number, word in enumerate(words)}, unk_token="<pad>"))
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>")


def train(steps: int, pool: kbenv.EvaluatorPool, out: Path) -> list[float]:
    """Trains and returns the mean reward of each step."""
    set_seed(0)
    tokenizer = make_tokenizer()
    config = GPT2Config(
        vocab_size=len(tokenizer), n_positions=8, n_embd=32, n_layer=1, n_head=2,
        bos_token_id=None, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    trainer = GRPOTrainer(
        model=GPT2LMHeadModel(config),
        processing_class=tokenizer,
        reward_funcs=make_reward_func(pool),
        train_dataset=Dataset.from_list([{"prompt": problem, "problem": problem} for problem in ANSWERS] * 8),
        args=GRPOConfig(
            output_dir=str(out), max_steps=steps, per_device_train_batch_size=16, num_generations=8,
            max_completion_length=1, learning_rate=2e-3, lr_scheduler_type="constant", beta=0.0, use_cpu=True,
            bf16=False, logging_steps=1, save_strategy="no", report_to=[], disable_tqdm=True,
        ),
    )  # fmt: skip
    trainer.train()
    return [entry["reward"] for entry in trainer.state.log_history if "reward" in entry]


def draw_curve(rewards: list[float], path: Path, width: int = 640, height: int = 240) -> None:
    """The mean reward by step, as a picture."""
    highest = max(*rewards, 0.1)
    points = [
        (40 + index * (width - 60) / max(len(rewards) - 1, 1), height - 30 - reward / highest * (height - 50))
        for index, reward in enumerate(rewards)
    ]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" '
        f'font-size="12"><rect width="100%" height="100%" fill="white"/>'
        f'<path d="M40 20V{height - 30}H{width - 20}" fill="none" stroke="black"/>'
        f'<polyline points="{line}" fill="none" stroke="#1f77b4" stroke-width="2"/>'
        f'<text x="6" y="24">{highest:.2f}</text><text x="14" y="{height - 28}">0</text>'
        f'<text x="{width // 2 - 60}" y="{height - 8}">step (1 to {len(rewards)})</text>'
        f'<text x="44" y="14">mean reward of a batch</text></svg>\n',
        encoding="utf-8",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--devices", default="cpu", help="separated by commas: cpu, cuda:0, all")
    parser.add_argument("--curve", type=Path, help="where to draw the mean reward by step (SVG)")
    parser.add_argument("--out", type=Path, default=Path("runs/grpo"))
    arguments = parser.parse_args()
    with kbenv.open_pool(arguments.devices.split(","), protocol="verified", effort="quick") as pool:
        rewards = train(arguments.steps, pool, arguments.out)
    tenth = max(len(rewards) // 10, 1)
    first, last = sum(rewards[:tenth]) / tenth, sum(rewards[-tenth:]) / tenth
    print(f"mean reward: {first:.3f} in the first {tenth} steps, {last:.3f} in the last {tenth}")
    if arguments.curve is not None:
        draw_curve(rewards, arguments.curve)


if __name__ == "__main__":
    main()
