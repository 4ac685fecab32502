"""What an audit holds of a problem: numbers from the sandbox (`kbenv.sandbox.judge.audit`), one class for each part.

What they mean is read off them in `kbenv.audit`.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class Finding(Frozen):
    """One thing worth knowing: `flag` for a table's column, `text` for people."""

    kind: str
    flag: str
    text: str


class Output(Frozen):
    """One output on one draw, over its finite elements; mean, spread, rms and max_abs are None where there is none."""

    elements: int
    nonfinite: int
    mean: float | None
    spread: float | None = Field(description="standard deviation")
    rms: float | None
    max_abs: float | None
    small_share: float = Field(description="of elements below 1e-2 in size")
    noise: float = Field(
        description="root mean square of the reference's own error: the larger of fp32 against float64 and of inputs "
        "moved by a unit in the last place; without TF32"
    )


class Tolerances(Frozen):
    """The smallest absolute and relative tolerance at once that admits a wrong output; None: no tolerance does."""

    zeros: float | None
    mean: float | None = Field(description="the mean of another draw's output everywhere")
    frozen: float | None = Field(description="the output of another draw")


class DrawnOutput(Output):
    """One output on the first of two plain draws, and how the second one's differs."""

    shape: tuple[int, ...]
    dtype: str
    between: float | None = Field(description="root mean square of the difference")
    tolerances: Tolerances


class Distribution(Frozen):
    """One hidden distribution or probe.

    Attributes:
        touched: False where the inputs hold nothing that the probe may change; nothing else is known then.
        error: what the reference raised.
        dropped: why the problem itself leaves this distribution out.
        errors: relative error by variant ("rounding": fp32 against float64; "baseline": under the baseline's TF32
            flags; "jitter": inputs moved by a unit in the last place), the largest over the outputs.
    """

    name: str
    touched: bool
    error: str | None
    dropped: str | None
    outputs: tuple[Output, ...]
    errors: dict[str, float]
    ill_conditioned: bool

    @property
    def is_finite(self) -> bool:
        return not any(output.nonfinite for output in self.outputs)


class State(Frozen):
    """The model as it is given, or with the constants of its construction redrawn, on plain draws and on others."""

    outputs: tuple[DrawnOutput, ...]
    errors: dict[str, float] = Field(description="as in `Distribution`")
    ill_conditioned: bool
    distributions: tuple[Distribution, ...]


class Tensor(Frozen):
    """A parameter or buffer as given. `module` is the class that holds it; `constant` its one value, if it is one."""

    role: Literal["parameter", "buffer"]
    name: str
    module: str
    own_name: str
    shape: tuple[int, ...]
    dtype: str
    constant: float | None

    @property
    def is_identity(self) -> bool:
        """Whether it is a constant parameter; a single number may be drawn, and counts where it is whole."""
        several = any(size != 1 for size in self.shape)
        return (
            self.role == "parameter"
            and self.constant is not None
            and (several or self.constant == round(self.constant))
        )


class Redraw(Frozen):
    """What redrawing constants came to. `drawn`: keys (kind, shape, constant, ordinal) of the runner's redrawing."""

    error: str | None
    drawn: tuple[JsonValue, ...]
    left: tuple[str, ...] = Field(description="names of what kept its constant")


class Randomness(Frozen):
    """Equal calls on equal inputs.

    Attributes:
        repeat: relative difference of two calls.
        draws: whether forward takes anything from PyTorch's global generators.
        repeat_in_evaluation: as `repeat` after `eval()`; None where that was not needed.
    """

    repeat: float
    draws: bool
    repeat_in_evaluation: float | None


class InputFacts(Frozen):
    """`varies`: whether another draw has other values; `change`: of the output when this input alone is drawn anew,
    relative; None where it does not vary, or raises `error`."""

    shape: tuple[int, ...]
    dtype: str
    varies: bool
    change: float | None
    error: str | None


class ParameterFacts(Frozen):
    """`change`: of the output with noise on this parameter alone (a tenth of its size), relative."""

    name: str
    change: float | None
    error: str | None


class Size(Frozen):
    """What a call takes.

    Attributes:
        forward_ms: in the runner, calls in a row, launches included.
        device_ms: by the judge's gated clock on a GPU; None on the CPU.
        input_bytes, output_bytes: of one slot.
        peak_bytes: the allocator's over one forward on a GPU, weights and inputs included.
        need_bytes, have_bytes, slots, exclusive: the memory plan of a job (see kbenv.sandbox.judge.plan).
        draws_on_device: False where `get_inputs` insists on the CPU.
    """

    forward_ms: float
    device_ms: float | None
    input_bytes: int
    output_bytes: int
    weight_bytes: int
    peak_bytes: int | None
    need_bytes: int
    have_bytes: int
    slots: int
    exclusive: bool
    draws_on_device: bool
