"""Where the runners of one job live: their users, their scratch folders, and those that wait blank for their turn.

A place may be made before there is a job for it. On a GPU it pays: a runner's CUDA context takes a third of a second,
and a judge that has nothing to do can have the runners of the next job made meanwhile. They hold nothing of the job
before, of which nothing is left by then, and differ in nothing from blank runners that are started later (`spares`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ..confine import isolation_level
from ..zygote import Zygote
from .arm import Arm
from .faults import InfrastructureFault
from .plan import CONTEXT_BYTES
from .setting import Setting
from .spares import Spares

REFERENCE, SUBMISSION, NULL, BASELINE = ROLES = ("reference", "submission", "null", "baseline")
"""BASELINE: a variant of the reference that is timed beside it, such as the compiled one."""
_BUILDER, _WAITING = "builder", "waiting"
UIDS = len((*ROLES, _BUILDER, _WAITING))
_SHARE = 16
"""Of a GPU's memory, one part in so many may go to the contexts of runners that wait for a job."""


class Place:
    """Of one job; a context manager, which leaves nothing behind or says what in `left`.

    Args:
        setting: of the job; one that is made ahead serves no job with another.
        uids: one per role, one for builders and one for blank runners, or None without root: then nothing is built
            outside.
    """

    def __init__(self, zygote: Zygote, setting: Setting, uids: Sequence[int] | None) -> None:
        self.zygote = zygote
        self.setting = setting
        self.flags: list[str] = []
        """Of the job."""
        self.left: str | None = None
        """What could not be removed; no other job may follow it here."""
        self._uids = dict(zip((*ROLES, _BUILDER, _WAITING), uids or (None,) * UIDS, strict=True))
        self._scratch: dict[str, str] = {}
        self._stack = contextlib.ExitStack()
        self.spares = Spares(self._start_blank, self.flags)
        with contextlib.ExitStack() as undone:
            undone.callback(self.close)
            for role in ROLES:
                self._scratch[role] = zygote.new_scratch(role, self._uids[role], setting.scratch_bytes)
                self._stack.callback(self._wipe, role)  # after the arms, which come later, have stopped
            undone.pop_all()

    def __enter__(self) -> Place:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends every runner and removes what they left."""
        self.spares.release()
        self._stack.close()

    @property
    def builder_uid(self) -> int | None:
        return self._uids[_BUILDER]

    def start(self, role: str, **how: Any) -> Arm:
        """A new runner; it is stopped with the place at the latest."""
        return self._stack.enter_context(self.open(role, **how))

    def open(self, role: str, **how: Any) -> Arm:
        """A new runner that is the caller's to stop."""
        return Arm(self.zygote, role, self.setting, self._uids[role], self._scratch[role], **how)

    def _start_blank(self, role: str) -> Arm:
        return self.start(role, blank=True, waiting_uid=self._uids[_WAITING])

    def _wipe(self, role: str) -> None:
        """What cannot be removed ends this judge, and is no reason to withhold the verdict: it could be on purpose."""
        if self.left is None:
            try:
                self.zygote.wipe_scratch(role)
            except (OSError, RuntimeError) as e:
                self.left = str(e)


class Ahead:
    """The place of a judge's next job, made while there is none; a context manager.

    Only on a GPU. Some runners are started at once, others when these are ready and no job has come for a while: they
    would be in the way of one that follows closely.
    """

    def __init__(self, make: Callable[[Setting], Place]) -> None:
        self._make = make
        self._setting: Setting | None = None
        self._place: Place | None = None
        self._roles: list[Sequence[str]] = []
        """What is to be there after each further step."""

    def __enter__(self) -> Ahead:
        return self

    def __exit__(self, *_: object) -> None:
        self.take(None)

    def expect(self, setting: Setting, at_start: Sequence[str], further: Sequence[str]) -> None:
        """A job of this setting, which wants these roles."""
        if setting.device == "cuda":
            most = torch.cuda.get_device_properties(0).total_memory // _SHARE // CONTEXT_BYTES
            self._setting, self._roles = setting, [at_start[:most], [*at_start, *further][:most]]

    @property
    def has_more(self) -> bool:
        return self._setting is not None and bool(self._roles)

    def go_on(self) -> None:
        """Has the next ones started, without waiting for them. What fails here fails again in a job, which says so."""
        if self._setting is None or not self._roles or not (self._place is None or self._place.spares.have_answered):
            return
        roles = self._roles.pop(0)
        with contextlib.suppress(OSError, RuntimeError):
            self._place = self._place or self._make(self._setting)
            self._place.spares.complete(roles)

    def take(self, setting: Setting | None) -> Place | None:
        """The place, if there is one that suits; it is the caller's then. Any other is closed."""
        place, self._place, suits = self._place, None, self._setting == setting
        self._setting, self._roles = None, []
        if place is not None and not suits:
            place.close()
            return None
        return place


def expect_isolation(had: Mapping[str, Any]) -> None:
    """Raises InfrastructureFault: a submission would run as this user, with this user's files before it."""
    if isolation_level(had) == "same-uid":
        raise InfrastructureFault(
            "isolation",
            "nothing but limits and a filter would keep the submission from this user's files, and the protocol "
            "asks for more: install bubblewrap, run kbenv as root or with Docker, or allow it (--allow-same-uid)",
        )
