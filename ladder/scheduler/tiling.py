"""How a CTA's work is shared among its warps."""

from __future__ import annotations

from dataclasses import dataclass

from ladder.scheduler.packing import TILE_ROWS

#: tokens of one mma tile: the N extent of m16n8k16
TILE_TOKENS = 8


@dataclass(frozen=True)
class Tiling:
    """How a CTA's work is shared among its warps.

    Attributes:
        warps_k: K slices; each has a ring of its own, their sums are added at the end.
        warps_n: warps along the output channels.
        warps_m: warps along the tokens.
        row_tiles: 16-channel tiles of one warp.
        token_tiles: 8-token tiles of one warp.
    """

    warps_k: int
    warps_n: int
    warps_m: int
    row_tiles: int
    token_tiles: int

    @property
    def threads(self) -> int:
        """Threads of the CTA."""
        return 32 * self.warps_k * self.warps_n * self.warps_m

    @property
    def ring_warps(self) -> int:
        """Warps that share one ring."""
        return self.warps_n * self.warps_m

    @property
    def tile_rows(self) -> int:
        """16-channel tiles of the CTA."""
        return self.warps_n * self.row_tiles

    @property
    def channels(self) -> int:
        """Output channels of the CTA."""
        return self.tile_rows * TILE_ROWS

    @property
    def tokens(self) -> int:
        """Tokens of the CTA."""
        return self.warps_m * self.token_tiles * TILE_TOKENS

    def __str__(self) -> str:
        return (
            f"{self.channels} channels x {self.tokens} tokens, warps k{self.warps_k} n{self.warps_n}"
            f" m{self.warps_m}, {self.row_tiles} x {self.token_tiles} tiles a warp"
        )
