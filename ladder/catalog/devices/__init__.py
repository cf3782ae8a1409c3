"""Shipped devices, one module each, found by name through ``ladder.devices``; each module defines ``DEVICE``."""

from __future__ import annotations
