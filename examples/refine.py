"""Lets any model refine a kernel with the judge's feedback.

    python examples/refine.py openai/gpt-5 core/level1/softmax

Any name that litellm knows will do, with its key in the environment. Without arguments recorded answers stand in for
the model, which needs no key.
"""

import sys
from pathlib import Path

import gymnasium

import kbenv  # noqa: F401  registers the environments
from kbenv.agents.model import LitellmModel
from kbenv.agents.multi_turn import MultiTurn
from kbenv.agents.replay import load_replay

TURNS = 5


def main() -> None:
    problem = sys.argv[2] if len(sys.argv) > 2 else "core/level1/relu"
    recorded = Path(__file__).parent / "replay"
    model = LitellmModel(sys.argv[1]) if len(sys.argv) > 1 else load_replay(recorded, problem)
    with gymnasium.make("kbenv/MultiTurn-v0", problem=problem, max_turns=TURNS) as env:
        trajectory = MultiTurn(model, turns=TURNS).run(
            env.unwrapped, problem, lambda turn: print(turn.index, turn.verdict.status if turn.verdict else "done")
        )
    best = trajectory.best
    print(f"best: {best.speedup:.2f}x\n\n{best.code}" if best else "no answer was credited")


if __name__ == "__main__":
    main()
