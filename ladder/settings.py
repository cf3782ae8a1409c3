"""Settings that come from the environment; the only module that reads ``os.environ``.

==========================  ====================================================================================
variable                    meaning
==========================  ====================================================================================
``LADDER_CACHE_DIR``        folder of chosen plans and compiled kernels; ``off`` keeps kernels in memory only
``LADDER_TOOLCHAIN``        ``auto`` (default), ``nvrtc`` or ``nvcc``
``LADDER_TUNED_DIR``        folder of measured plans; ``off`` leaves those that are shipped
``CUDA_HOME``/``CUDA_PATH``  a CUDA toolkit whose ``bin/nvcc`` is used when nvcc is not on PATH
==========================  ====================================================================================

A folder may begin with ``~``, the user's home, which no shell replaces in a service's file or a container's.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """One reading of the environment.

    Args:
        cache_dir: folder of the cache, ``off``, or None for the user's cache folder.
        toolchain: ``auto``, ``nvrtc`` or ``nvcc``.
        cuda_home: root of a CUDA toolkit, or None.
        path: where programs are looked for.
        tuned_dir: folder of measured plans, ``off``, or None for the user's data folder.
    """

    cache_dir: str | None = None
    toolchain: str = "auto"
    cuda_home: str | None = None
    path: str = ""
    tuned_dir: str | None = None

    @classmethod
    def read(cls, environment: Mapping[str, str] | None = None) -> Settings:
        """Read the environment now; an empty variable counts as unset."""
        env = os.environ if environment is None else environment
        return cls(
            cache_dir=_folder(env, "LADDER_CACHE_DIR"),
            toolchain=env.get("LADDER_TOOLCHAIN") or "auto",
            cuda_home=env.get("CUDA_HOME") or env.get("CUDA_PATH") or None,
            path=env.get("PATH", os.defpath),
            tuned_dir=_folder(env, "LADDER_TUNED_DIR"),
        )


def _folder(environment: Mapping[str, str], name: str) -> str | None:
    return os.path.expanduser(environment.get(name, "")) or None  # noqa: PTH111 - pathlib raises where there is no home
