"""The Gymnasium environments: one problem, answers as text, a verdict's feedback and reward.

They hold no judge of their own: `kbenv.evaluator.Evaluator` establishes verdicts, `kbenv.reward` and `kbenv.feedback`
read them. Nothing here retries: a fault of the machine (`kbenv.errors.SandboxError`) is raised from `step`, because a
trainer must see "no reward" and never a zero that the agent did not earn.
"""

from __future__ import annotations

import typing
from abc import abstractmethod
from typing import Any

import gymnasium
from gymnasium.error import ResetNeeded

from kbenv.errors import UsageError
from kbenv.evaluator import Evaluator
from kbenv.extraction import DONE, extract_code, says_done
from kbenv.feedback import render_feedback
from kbenv.problems import load_problem
from kbenv.problems.problem import Problem
from kbenv.prompt import render_prompt
from kbenv.prompts import render
from kbenv.protocol import Protocol
from kbenv.reward import DEFAULT_REWARD, NEED_COMPILED, expect_needs, get_reward
from kbenv.spaces import TextSpace
from kbenv.verdict import Verdict


class Judging(typing.Protocol):
    """What an environment asks of an `Evaluator`, or of an `EvaluatorPool`."""

    @property
    def protocol(self) -> Protocol: ...

    @property
    def device(self) -> str: ...

    @property
    def backend(self) -> str: ...

    def evaluate(self, problem: Problem | str, source: str) -> Verdict:
        """The verdict. Raises SandboxError."""

    def format_error(self, problem: Problem | str, message: str) -> Verdict:
        """The verdict for an answer without code."""

    def close(self) -> None:
        """Ends the judge."""


class _KernelEnv(gymnasium.Env[str, str]):
    """What both environments share: one evaluator, one problem, the bookkeeping of turns."""

    metadata = {"render_modes": ["ansi"], "render_fps": 1}  # noqa: RUF012 (as Gymnasium declares it)

    def __init__(
        self,
        problem: Problem | str,
        *,
        evaluator: Judging | None = None,
        reward: str = DEFAULT_REWARD,
        render_mode: str | None = None,
        **evaluator_options: Any,
    ) -> None:
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise UsageError(f"render_mode must be None or 'ansi'; found {render_mode!r}")
        if evaluator is not None and evaluator_options:
            names = ", ".join(sorted(evaluator_options))
            raise UsageError(f"give an evaluator or its options, not both; found an evaluator and {names}")
        self.render_mode = render_mode
        self.observation_space = TextSpace()
        self.action_space = TextSpace()
        self.problem = load_problem(problem) if isinstance(problem, str) else problem
        self._reward = get_reward(reward)
        self._owns_evaluator = evaluator is None
        if reward in NEED_COMPILED and evaluator is None:
            evaluator_options["compiled_baseline"] = True
        self.evaluator = Evaluator(**evaluator_options) if evaluator is None else evaluator
        expect_needs(reward, self.evaluator.protocol)
        self._turn: int | None = None  # None: an episode must be started first
        self._verdict: Verdict | None = None
        self._best: Verdict | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Starts an episode.

        Args:
            seed: seeds `np_random`, as Gymnasium asks; the episode itself draws nothing from it (the judge has seeds of
                its own, which an agent must not choose).
            options: there are none; whatever is given is ignored.

        Returns:
            The prompt, and the information described at the class.
        """
        super().reset(seed=seed)
        self._turn, self._verdict, self._best = 0, None, None
        return self._prompt(), self.info()

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Judges one answer.

        Returns:
            Feedback, reward, whether the episode has ended, False (nothing truncates), and the information.

        Raises:
            gymnasium.error.ResetNeeded: no episode is running.
            kbenv.errors.SandboxError: no verdict could be had. The episode is as it was: the same action may be tried
                again.
        """
        self.expect_running()
        code = extract_code(action)
        return self.settle(action, None if self.is_farewell(action, code) else self._judge(code))

    def expect_running(self) -> None:
        """Raises ResetNeeded when no episode is running."""
        if self._turn is None:
            raise ResetNeeded("no episode is running: call reset() before the first step and after the last")

    def settle(self, action: str, verdict: Verdict | None) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """What `step` returns for an answer with this verdict; None for one that is not judged, a farewell."""
        assert self._turn is not None
        if verdict is None:
            observation, reward = "", 0.0
        else:
            self._verdict = verdict
            if verdict.credited and (self._best is None or _faster(verdict, self._best)):
                self._best = verdict
            observation, reward = render_feedback(verdict), self._reward(verdict)
        self._turn += 1
        terminated = self._is_over(action)
        if not terminated:
            observation = self._continued(observation)
        info = self.info()
        if terminated:
            self._turn = None
        return observation, reward, terminated, False, info

    def render(self) -> str | None:
        """One line on the last verdict when `render_mode` is "ansi", else None."""
        if self.render_mode is None:
            return None
        verdict = self._verdict
        if verdict is None:
            return f"{self.problem.id}: no verdict yet"
        line = f"{self.problem.id}: {verdict.status}"
        if verdict.speedup is not None:
            line += f" {verdict.speedup.value:.2f}x [{verdict.speedup.low:.2f}, {verdict.speedup.high:.2f}]"
        if verdict.latency_ms is not None:
            line += f", {verdict.latency_ms:.4g} ms against {verdict.reference_latency_ms:.4g} ms"
        return line

    def close(self) -> None:
        """Closes the evaluator if this environment made it; one that was passed in stays its owner's."""
        if self._owns_evaluator:
            self.evaluator.close()
        super().close()

    @abstractmethod
    def _is_over(self, action: str) -> bool:
        """Whether the episode ends with the turn just counted."""

    def is_farewell(self, action: str, code: str | None) -> bool:
        """Whether an answer, in which that code was found, is no failed attempt but only ends the episode."""
        return False

    def _continued(self, feedback: str) -> str:
        """The observation of a turn that is not the last."""
        return feedback

    def _judge(self, code: str | None) -> Verdict:
        if code is None:
            return self.evaluator.format_error(self.problem, "the answer holds no fenced block with Python code")
        return self.evaluator.evaluate(self.problem, code)

    def _prompt(self) -> str:
        evaluator = self.evaluator
        return render_prompt(self.problem, evaluator.protocol, evaluator.device, evaluator.backend)

    def info(self) -> dict[str, Any]:
        """What `reset` and `step` return beside the observation: described at the class."""
        return {"problem": self.problem.id, "turn": self._turn, "verdict": self._verdict, "best": self._best}


class SingleTurnEnv(_KernelEnv):
    """One problem, one answer: write a kernel that computes what a PyTorch module computes, faster.

    ## Description
    The agent reads a PyTorch module and answers with a module `ModelNew` that does the same with kernels of its own.
    The answer's code is judged in a sandbox, against the PyTorch that a practitioner really runs: correctness on the
    standard and on hidden inputs, latency on the judge's clock, memory. The judge never imports the agent's code, and
    the agent's code cannot reach the judge.

    ## Action Space
    `TextSpace`: the model's answer as it came, any Unicode text. `kbenv.extraction.extract_code` finds the source in
    it; an answer without any is judged FORMAT_ERROR.

    ## Observation Space
    `TextSpace`: what the model reads next. `reset` returns the prompt; `step` returns the feedback, which tells of the
    standard trials in full and of the hidden checks only whether they passed.

    ## Starting State
    The prompt: the problem's source with the sizes for the evaluator's device, the rules, and the form of an answer. It
    is the same in every episode.

    ## Rewards
    A pure function of the verdict, chosen by `reward`:

    - `verified` (default): 0 when not credited, else from 0.05 to 1.55, rising with the logarithm of the speedup; 0.5
      at the reference's speed and memory;
    - `kevin`: 0 when not credited, else 0.3 + speedup;
    - `tiers`: -1 when not credited, 1 when credited, 2 when faster than eager PyTorch, 3 when 5% faster than
      torch.compile, which is timed for it;
    - `fast_p`: 1 when credited and faster than the reference, else 0;
    - `correct`: 1 when credited, else 0;
    - `kernelgym`: 0 when not credited, else 0.5 + 0.5 * min(speedup, 3) + the share of time in custom kernels.

    A fault of the machine gives no reward: `step` raises `kbenv.errors.SandboxError`.

    ## Episode End
    Termination: after the one step. Nothing truncates an episode. A further `step` raises
    `gymnasium.error.ResetNeeded`.

    ## Information
    `reset` and `step` return

    - `problem`: the problem's id;
    - `turn`: answers given so far in this episode;
    - `verdict`: the `kbenv.Verdict` of the last answer judged, with all its evidence, None before. It is for people and
      trainers: it says what the feedback hides, so do not show it to the agent;
    - `best`: the credited verdict with the highest speedup so far, None when there is none.

    ## Arguments
    ```python
    import gymnasium
    import kbenv
    env = gymnasium.make("kbenv/SingleTurn-v0", problem="core/level1/relu", protocol="verified", device="auto")
    ```

    - `problem`: a `Problem`, or its name, or the path of a KernelBench-format file;
    - `evaluator`: the `kbenv.Evaluator` to use, which stays open when the environment closes; or else
    - any option of `kbenv.Evaluator`, for one of the environment's own: `protocol`, `precision`, `device`, `sandbox`,
      `backend`, `require_custom_kernel`;
    - `reward`: a name from above;
    - `render_mode`: "ansi" for one line on the last verdict, or None.

    ## Version History
    * v0: Initial version
    """

    def _is_over(self, action: str) -> bool:
        return True


class MultiTurnEnv(_KernelEnv):
    """One problem, several answers: improve a kernel with the judge's feedback after each.

    ## Description
    As in `SingleTurnEnv`, but the agent reads the feedback on its answer and may answer again. Every answer is judged
    by itself and carries the whole source; nothing of an earlier one is kept in the sandbox.

    ## Action Space
    `TextSpace`: the model's answer as it came, any Unicode text. `<done/>`, outside of the code and of the reasoning,
    says that this answer is the last; an answer that is `<done/>` and holds no code only ends the episode.

    ## Observation Space
    `TextSpace`: what the model reads next. `reset` returns the prompt; `step` returns the feedback, and, while the
    episode goes on, the turn's number, the best speedup so far, and how to go on. After an answer that only says
    `<done/>` it is empty.

    ## Starting State
    The prompt: the problem's source with the sizes for the evaluator's device, the rules, and the form of an answer. It
    is the same in every episode.

    ## Rewards
    Every turn gives the reward of its own verdict, as in `SingleTurnEnv` (`reward` chooses which): not the improvement
    over the turn before, and not the best so far. A turn that only says `<done/>` was not judged and gives 0.0: it
    neither adds to a return nor takes from it. `kbenv.reward.discounted` turns a trajectory's rewards into returns.

    A fault of the machine gives no reward: `step` raises `kbenv.errors.SandboxError`, and the turn is not counted.

    ## Episode End
    Termination: after `max_turns` answers, or after one that says `<done/>`. Nothing truncates an episode: the number
    of turns is part of the task, and the agent is told. A further `step` raises `gymnasium.error.ResetNeeded`.

    ## Information
    `reset` and `step` return

    - `problem`: the problem's id;
    - `turn`: answers given so far in this episode, one that only says `<done/>` included;
    - `verdict`: the `kbenv.Verdict` of the last answer judged, with all its evidence, None before any was; a turn that
      only says `<done/>` leaves it as it is. It is for people and trainers: it says what the feedback hides, so do not
      show it to the agent;
    - `best`: the credited verdict with the highest speedup so far, None when there is none.

    ## Arguments
    ```python
    import gymnasium
    import kbenv
    env = gymnasium.make("kbenv/MultiTurn-v0", problem="core/level1/relu", max_turns=10)
    ```

    - `max_turns`: most answers in an episode, at least 1;
    - `problem`, `evaluator` or its options, `reward`, `render_mode`: as in `SingleTurnEnv`.

    ## Version History
    * v0: Initial version
    """

    def __init__(
        self,
        problem: Problem | str,
        *,
        max_turns: int = 10,
        evaluator: Judging | None = None,
        reward: str = DEFAULT_REWARD,
        render_mode: str | None = None,
        **evaluator_options: Any,
    ) -> None:
        if max_turns < 1:
            raise UsageError(f"max_turns must be at least 1; found {max_turns}")
        self.max_turns = max_turns
        super().__init__(problem, evaluator=evaluator, reward=reward, render_mode=render_mode, **evaluator_options)

    def _is_over(self, action: str) -> bool:
        return self._turn == self.max_turns or says_done(action)

    def is_farewell(self, action: str, code: str | None) -> bool:
        return code is None and says_done(action)

    def _continued(self, feedback: str) -> str:
        values = {"feedback": feedback, "turn": self._turn, "max_turns": self.max_turns}
        return render("turn.j2", **values, best=self._best, done=DONE).strip()


def _faster(verdict: Verdict, other: Verdict) -> bool:
    return verdict.speedup is not None and other.speedup is not None and verdict.speedup.value > other.speedup.value
