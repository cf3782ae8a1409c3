"""Names for the values that a user may ask for: ``ladder.types["int4"]``, ``ladder.devices["h200"]``.

A registry is filled from ``ladder.catalog`` when it is first asked, so that importing ``ladder`` loads
no catalogue and no package imports one. A name is given once; giving it again is an error.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from ladder.checks import TEXT, shown
from ladder.errors import DeviceError, LadderError, TypeDeclarationError

T = TypeVar("T")

#: what a catalogue hands over: values with a ``name``, and aliases from name to name
Catalog = tuple[Iterable[T], Mapping[str, str]]


class Registry(Mapping[str, T], Generic[T]):
    """Values by name and alias; iteration lists the names, in order, without the aliases.

    Args:
        kind: what the values are, for messages.
        catalog: called once, on the first look-up.
        error: what an unknown or doubled name raises.
        refusals: names that are not offered -> why; called when an unknown name is met.
    """

    def __init__(
        self,
        kind: str,
        catalog: Callable[[], Catalog[T]],
        error: type[LadderError],
        refusals: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        self._kind = kind
        self._catalog = catalog
        self._error = error
        self._refusals = refusals
        self._values: dict[str, T] = {}
        self._aliases: dict[str, str] = {}
        self._filled = False
        self._lock = threading.RLock()

    def register(self, value: T, *aliases: str) -> T:
        """Add a value under its own ``name`` and under aliases; returns it.

        Raises:
            LadderError: (of the registry's own kind) a name is taken or no text, or the value has none.
        """
        with self._lock:
            self._fill()
            self._add(value, self._values, self._aliases, aliases)
        return value

    @property
    def aliases(self) -> Mapping[str, str]:
        """Alias -> name."""
        self._fill()
        return dict(self._aliases)

    def __getitem__(self, name: str) -> T:
        self._fill()
        if name not in self:
            raise self._unknown(name)
        return self._values[self._aliases.get(name, name)]

    def get(self, name: str, default: Any = None) -> Any:
        """The value of a name, or ``default``."""
        if name not in self:
            return default
        return self[name]

    def __contains__(self, name: object) -> bool:
        self._fill()
        return isinstance(name, str) and (name in self._values or name in self._aliases)

    def __iter__(self) -> Iterator[str]:
        self._fill()
        return iter(tuple(self._values))

    def __len__(self) -> int:
        self._fill()
        return len(self._values)

    def __repr__(self) -> str:
        return f"<{self._kind}s: {', '.join(self)}>"

    def _unknown(self, name: object) -> LadderError:
        """The error for a name that nothing has: with the reason where it is refused, else with what was probably meant."""
        at = f"ladder.{self._kind}s[{shown(name)}]"
        known = (*self._values, *self._aliases)
        if not isinstance(name, str):
            hint = suggestion("", known)
            return self._error(
                f"a {self._kind}'s name is a text, found {shown(name)}", at=at, hint=hint
            )
        reason = self._refusals().get(name.lower())
        if reason is not None:
            return self._error(f"{name} is not offered", at=at, hint=reason)
        return self._error(
            f"unknown {self._kind} {shown(name)}", at=at, hint=suggestion(name, known)
        )

    def _fill(self) -> None:
        """Load the catalogue once, whole or not at all."""
        with self._lock:
            if self._filled:
                return
            loaded, aliases = self._catalog()
            values: dict[str, T] = {}
            names: dict[str, str] = {}
            for value in loaded:
                self._add(value, values, names, ())
            for alias, name in aliases.items():
                self._add_alias(alias, name, values, names)
            self._values, self._aliases = values, names
            self._filled = True

    def _add(
        self, value: T, values: dict[str, T], names: dict[str, str], aliases: Iterable[str]
    ) -> None:
        name = getattr(value, "name", None)
        if not isinstance(name, str) or not name:
            raise self._error(
                f"a {self._kind} is registered under its name, and {shown(value)} has none",
                at=f"ladder.{self._kind}s.register",
                hint=f"register a {self._kind} as it was made: its attribute name is a text",
            )
        for taken in (name, *aliases):
            self._check_free(taken, values, names)
        values[name] = value
        for alias in aliases:
            self._add_alias(alias, name, values, names)

    def _add_alias(
        self, alias: str, name: str, values: dict[str, T], names: dict[str, str]
    ) -> None:
        self._check_free(alias, values, names)
        if name not in values:
            raise self._error(
                f"alias {alias!r} stands for {name!r}, which is no {self._kind}",
                at=f"aliases of the catalogue of {self._kind}s",
                hint=suggestion(name, values),
            )
        names[alias] = name

    def _check_free(self, name: str, values: dict[str, T], names: dict[str, str]) -> None:
        if not TEXT.fits(name) or not name:
            raise self._error(
                f"an alias is a text, found {shown(name)}",
                at=f"ladder.{self._kind}s.register",
                hint="several aliases are given one by one: register(value, 'first', 'second')",
            )
        if name in values or name in names:
            raise self._error(
                f"the {self._kind} name {name!r} is taken",
                at=names.get(name, name),
                hint="choose another name; registered values are never replaced",
            )


def suggestion(name: str, known: Iterable[str]) -> str:
    """A hint that names what was probably meant, or else everything there is."""
    names = list(dict.fromkeys(known))
    close = difflib.get_close_matches(name.lower(), names, n=3)
    if close:
        return f"did you mean {' or '.join(close)}?"
    return f"known names: {', '.join(names)}"


def _load_types() -> Catalog[Any]:
    module = importlib.import_module("ladder.catalog.types")
    return module.TYPES, module.ALIASES


def _refused_types() -> Mapping[str, str]:
    refused: Mapping[str, str] = importlib.import_module("ladder.ttype.resolve").NOT_OFFERED
    return refused


def _load_devices() -> Catalog[Any]:
    package = importlib.import_module("ladder.catalog.devices")
    names = sorted(found.name for found in pkgutil.iter_modules(package.__path__))
    modules = [importlib.import_module(f"{package.__name__}.{name}") for name in names]
    for module in modules:
        if not hasattr(
            module, "DEVICE"
        ):  # or not yet: a file that asks for a device fills the registry while it runs
            raise DeviceError(
                f"{module.__name__} has no DEVICE by the time that ladder.devices is filled",
                at=module.__file__,
                hint="write a shipped device in full, DEVICE = Device(...), importing only ladder.ttile:"
                " ladder.devices cannot be read by the files that fill it",
            )
    aliases = {
        alias: module.DEVICE.name for module in modules for alias in getattr(module, "ALIASES", ())
    }
    return [module.DEVICE for module in modules], aliases


#: elements, grouped types and compute types; ``int8`` is the element (see ``ttype.compute_type``)
types: Registry[Any] = Registry("type", _load_types, TypeDeclarationError, _refused_types)

#: devices: each module of ``ladder.catalog.devices`` exposes ``DEVICE`` and, if it likes, ``ALIASES``
devices: Registry[Any] = Registry("device", _load_devices, DeviceError)
