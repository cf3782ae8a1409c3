"""What the plans of kernels beside matmuls have in common: a table of decisions, rules, and text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from ladder.checks import Expected, accept, refuse_unknown, shown
from ladder.errors import LadderError, PlanError, ScheduleError
from ladder.scheduler.cost import Cost
from ladder.scheduler.problem import Problem
from ladder.ttile import Device

if TYPE_CHECKING:
    from typing_extensions import Self


class SinglePlan:
    """A frozen dataclass derives from it, with ``op``, ``device`` and decisions as fields."""

    #: field -> what it has to be
    DECISIONS: ClassVar[Mapping[str, Expected[Any]]]
    #: those that a caller may fix
    FIXABLE: ClassVar[tuple[str, ...]]

    op: Any
    device: Device

    @property
    def brief(self) -> str:
        """The decisions in one line, without operator and device."""
        raise NotImplementedError

    @property
    def title(self) -> str:
        """One line that tells this plan from others."""
        return f"{self.op} on {self.device.name}: {self.brief}"

    def _rules(self) -> Iterator[Problem]:
        """Broken rules of a plan whose decisions are of their kinds."""
        raise NotImplementedError

    def _problems(self) -> Iterator[Problem]:
        """Every broken rule; those about sizes only where decisions are of their kinds."""
        kinds = [
            Problem(
                f"{name} is {shown(getattr(self, name))}, not {kind.wanted}",
                kind.hint or f"give {kind.wanted}",
            )
            for name, kind in self.DECISIONS.items()
            if not kind.fits(getattr(self, name))
        ]
        yield from kinds or self._rules()

    def check(self) -> tuple[str, ...]:
        """What is wrong with the plan, one sentence a broken rule; empty for a legal plan."""
        return tuple(map(str, self._problems()))

    def verify(self) -> None:
        """Raise where the plan breaks a rule.

        Raises:
            PlanError: some rule is broken; all of them are named.
        """
        found = tuple(self._problems())
        if found:
            raise PlanError(
                "; ".join(problem.what for problem in found),
                at=type(self).__name__,
                hint="; ".join(problem.hint for problem in found if problem.hint),
            )

    def with_(self, **decisions: Any) -> Self:
        """A copy with some decisions fixed by hand, checked again.

        Raises:
            PlanError: a decision is unknown, of another kind than the plan's, or makes the plan illegal.
        """
        at = f"{type(self).__name__}.with_"
        refuse_unknown(decisions, self.DECISIONS, "a plan has no decision", at=at, error=PlanError)
        plan: Self = replace(self, **self._in_form(decisions, at, PlanError))  # type: ignore[type-var]  # a dataclass
        plan.verify()
        return plan

    def cost(self) -> Cost:
        """The estimate."""
        raise NotImplementedError

    def explain(self) -> str:
        """The plan, and what it should cost."""
        return f"{self}\n\n{self.cost()}"

    def to_json(self) -> str:
        """Stable text that :meth:`from_json` reads back."""
        from ladder.scheduler.serial import dump_single

        return dump_single(self)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what :meth:`to_json` wrote.

        Raises:
            PlanError: the text is no such plan, or of another version.
        """
        from ladder.scheduler.serial import load_single

        return load_single(cls, text)

    @classmethod
    def wanted(cls, fixed: Mapping[str, Any]) -> dict[str, Any]:
        """What a caller of ``schedule`` fixed, in the form in which a plan keeps it; None leaves a decision open.

        Raises:
            ScheduleError: a decision is unknown, or of another kind than the plan's.
        """
        refuse_unknown(
            fixed, cls.FIXABLE, "a plan has no decision", at="schedule", error=ScheduleError
        )
        given = {name: value for name, value in fixed.items() if value is not None}
        return cls._in_form(given, "schedule", ScheduleError)

    def refuse_illegal(self, fixed: object, instead: str) -> None:
        """Raise where ``schedule`` found no other plan than this one, which breaks a rule.

        Raises:
            ScheduleError: it does.
        """
        if found := self.check():
            raise ScheduleError(
                f"no legal plan for {self.op} on {self.device.name}: {'; '.join(found)}",
                at=f"fixed {fixed}",
                hint=f"fix fewer decisions, or {instead}",
            )

    @classmethod
    def _in_form(
        cls, given: Mapping[str, Any], where: str, error: type[LadderError]
    ) -> dict[str, Any]:
        return {
            name: accept(value, cls.DECISIONS[name], name, at=f"{where}({name}=...)", error=error)
            for name, value in given.items()
        }
