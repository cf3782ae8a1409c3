"""A budget of counted work for searches: results depend on what was counted, never on how fast a machine is."""

from __future__ import annotations

#: steps that no search makes
UNLIMITED = 1 << 60


class Work:
    """Counts steps down from a limit and remembers whether something was left out for want of them.

    Args:
        limit: steps that may be spent.
    """

    def __init__(self, limit: int) -> None:
        self.limit = self.left = limit
        #: whether :meth:`goes_on` ever said no
        self.cut = False

    def spend(self, steps: int) -> None:
        """Count steps that were made."""
        self.left -= steps

    @property
    def spent(self) -> int:
        """Steps that were made."""
        return self.limit - self.left

    def goes_on(self) -> bool:
        """Whether there is something left; saying no is remembered."""
        self.cut = self.cut or self.left <= 0
        return self.left > 0

    def half(self) -> Work:
        """A budget of half of what is left, so that one part never takes everything; :meth:`settle` accounts for it."""
        return Work((self.left + 1) // 2)

    def settle(self, part: Work) -> None:
        """Take over what a part has spent and left out."""
        self.spend(part.spent)
        self.cut = self.cut or part.cut
