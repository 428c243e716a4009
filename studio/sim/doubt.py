"""A doubt about the answer of a simulation, and its cure, as they are kept with a run; `doubts.py` looks for them."""

from __future__ import annotations

from dataclasses import dataclass

from studio.sim.models import Model
from studio.trace import Finding
from studio.units import format_ns


@dataclass(frozen=True, slots=True)
class Cure:
    """What to simulate instead.

    Attributes:
        label: What a button says.
        model: The model; None is the one there is.
        settings: KEY=VALUE each, as `--set` takes them.
    """

    label: str
    model: Model | None = None
    settings: tuple[str, ...] = ()

    @property
    def option(self) -> str:
        """The options of `simulate` that ask for it.

        Example:
            >>> Cure("", "full", ("replay-only=0",)).option
            '--model full --set replay-only=0'
        """
        model = [f"--model {self.model}"] if self.model else []
        return " ".join([*model, *(f"--set {_quote_setting(setting)}" for setting in self.settings)])


def _quote_setting(setting: str) -> str:
    """Quote a setting for a shell, where brackets would mean something."""
    return f"'{setting}'" if "[" in setting else setting


@dataclass(frozen=True, slots=True)
class Doubt:
    """Why an answer is not to be believed as it stands.

    Attributes:
        code: Its row in `CHECKS`.
        message: What is wrong, with the figures.
        impossible: Whether no such network could do it; else it is what no library would do.
        cure: What to simulate instead; None where no setting helps.
    """

    code: str
    message: str
    impossible: bool
    cure: Cure | None = None

    @property
    def mark(self) -> str:
        """What stands before the answer, wherever that is listed."""
        return "IMPOSSIBLE" if self.impossible else "DOUBTFUL"

    @property
    def finding(self) -> Finding:
        """The doubt as a warning beside other findings."""
        hint = f"Try {self.cure.option}." if self.cure else ""
        return Finding("warning", self.code, self.message, hint)


@dataclass(frozen=True, slots=True)
class Cured:
    """The doubtful simulation that another one is the cure of.

    Attributes:
        option: The options of `simulate` that cured it.
        finish_ns: The time that was doubtful.
        run: Id of its run; "" where it was not kept.
    """

    option: str
    finish_ns: int
    run: str = ""

    def words(self, finish_ns: int) -> str:
        """Return what the cure changed.

        Example:
            >>> Cured("--model full", 1_900_000).words(4_250_000)
            'with --model full: 4.25 ms instead of 1.90 ms'
        """
        return f"with {self.option}: {format_ns(finish_ns)} instead of {format_ns(self.finish_ns)}"
