"""Blank runners: started together, ahead of their turn, so that none waits for a new process and its CUDA context.

A blank runner has run our code alone. Once it is ready it is stopped, and one that ran all the same is not used. The
submission's processes have no way to those of its own role that are to come: before its turn such a runner has the
submission's uid as its effective one only, and a signal, a trace or a look into its memory takes the real or the saved
one. What they could reach without that (files in the scratch folder, how the kernel schedules) a runner that is
started later finds just the same, and nothing but their own times depends on it. A blank runner holds no seed, no
slot and no weights. Before it gets the submission's source, every process of the one before it is gone.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

from .arm import Arm, ArmError


class Spares:
    """The blank runners of one job, by role. `start` makes one; `flags` hears of those that were no good."""

    def __init__(self, start: Callable[[str], Arm], flags: list[str]) -> None:
        self._start = start
        self._flags = flags
        self._blank: dict[str, list[Arm]] = defaultdict(list)

    def complete(self, roles: Sequence[str], *, at_most: int | None = None) -> None:
        """Has those of `roles` started that are not there, in that order; does not wait for them.

        `at_most`: so many.
        """
        missing, there = [], Counter({role: len(arms) for role, arms in self._blank.items()})
        for role in roles:
            there[role] -= 1
            if there[role] < 0:
                missing.append(role)
        for role in missing[:at_most]:
            self._blank[role].append(self._start(role))

    def has(self, role: str) -> bool:
        return bool(self._blank[role])

    @property
    def have_answered(self) -> bool:
        """Whether all of them are ready, or gone."""
        return all(arm.has_answered for arms in self._blank.values() for arm in arms)

    def rest(self) -> None:
        """Returns when all of them stand still."""
        for role, arms in self._blank.items():
            self._blank[role] = [arm for arm in arms if self._is_fit(arm, arm.rest)]

    def take(self, role: str) -> Arm | None:
        """One whose turn has come, if there is one."""
        while self._blank[role]:
            arm = self._blank[role].pop(0)
            if self._is_fit(arm, arm.begin):
                return arm
        return None

    def release(self) -> None:
        """None is needed any more; they still have to be stopped."""
        for arms in self._blank.values():
            for arm in arms:
                arm.release()

    def stop(self) -> None:
        """All are gone when this returns."""
        self.release()
        for arms in self._blank.values():
            while arms:
                arms.pop().stop()

    def _is_fit(self, arm: Arm, step: Callable[[], None]) -> bool:
        try:
            step()
        except ArmError as e:
            self._flags.append(f"a blank runner of the {arm.role} was not used: {e.message}")
            return False
        return True
