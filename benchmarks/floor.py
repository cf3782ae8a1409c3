"""The pure-read floor: how long this GPU takes to read so many bytes that do not lie in its cache, and nothing else."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks import clock
from benchmarks.operands import ROTATED_BYTES, Tensor
from benchmarks.peers import WrongNumbersError
from benchmarks.read_kernel import FILE, READERS, Reader
from ladder.codegen.kernel import Parameter
from ladder.runtime.argument_block import ArgumentLayout
from ladder.runtime.driver import cuda_driver

WORD_BYTES = 16
#: buffers start at multiples of this, in bytes
ALIGN = 256

#: the launcher's names for what the kernel takes: what it reads, how many words, where sums go, whether they do
LAYOUT = ArgumentLayout(
    (
        Parameter("words", "buffer", "uint32", "x"),
        Parameter("count", "scalar", "int64", "m"),
        Parameter("out", "buffer", "uint32", "y"),
        Parameter("write", "scalar", "int32", "y_pieces"),
    )
)


class Floor:
    """Times of plain launches that read, by bytes; each number of bytes is measured once."""

    def __init__(self, folder: Path, device: str) -> None:
        code = (folder / FILE).read_bytes()
        self._device = device
        self._driver = cuda_driver()
        self._ordinal = torch.device(device).index or 0
        names = {reader.name for reader in READERS}
        self._functions = {name: self._driver.load(self._ordinal, code, name, 0) for name in names}
        self._sms = torch.cuda.get_device_properties(device).multi_processor_count
        self._found: dict[int, float] = {}

    def us(self, nbytes: int) -> float:
        """Microseconds of the fastest reader.

        Raises:
            WrongNumbersError: a reader did not read every word.
        """
        words = -(-nbytes // WORD_BYTES)
        if words not in self._found:
            times = clock.interleaved(self.graphs(nbytes), tokens=1)
            self._found[words] = min(times.values())
        return self._found[words]

    def graphs(self, nbytes: int) -> dict[str, clock.Graph]:
        """Launches of each reader over rotated copies of so many bytes, to be timed beside something else.

        Raises:
            WrongNumbersError: a reader did not read every word.
        """
        words = -(-nbytes // WORD_BYTES)
        pitch = -(-words * WORD_BYTES // ALIGN) * ALIGN
        count = max(2, math.ceil(ROTATED_BYTES / pitch))
        limits = torch.iinfo(torch.int32)
        memory = torch.randint(
            limits.min, limits.max, (count, pitch // 4), dtype=torch.int32, device=self._device
        )
        out = torch.zeros(1, dtype=torch.int32, device=self._device)
        graphs = {}
        for reader in READERS:
            self._check(reader, memory[0], words, out)
            calls = [self._call(reader, row, words, out, write=False) for row in memory]
            graphs[str(reader)] = clock.capture(calls)
        return graphs

    def _check(self, reader: Reader, row: Tensor, words: int, out: Tensor) -> None:
        out.zero_()
        self._call(reader, row, words, out, write=True)()
        wanted = int(row[: 4 * words].sum(dtype=torch.int64))
        if (int(out.item()) - wanted) % 2**32:
            raise WrongNumbersError(f"{reader} does not read all of {words} words")

    def _call(
        self, reader: Reader, row: Tensor, words: int, out: Tensor, *, write: bool
    ) -> Callable[[], Any]:
        geometry = ((self._sms * reader.blocks, 1, 1), (reader.threads, 1, 1), 0, None)
        launch = self._driver.prepare(self._ordinal, self._functions[reader.name], geometry)

        def call() -> None:
            # made of the tensors here, so that whoever keeps the call keeps them
            values = {"x": row.data_ptr(), "m": words, "y": out.data_ptr(), "y_pieces": int(write)}
            launch(torch.cuda.current_stream().cuda_stream, LAYOUT.fill(values), pdl=False)

        return call
