"""Finds the application: the import string, the factory, and which interface the object has.

What fails raises :class:`Exit` with one sentence; where the application's own code raised, that error is the cause.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple, NoReturn

from m0serve._native import Config, Exit

DEFAULT_ATTRIBUTES = ("app", "application")


class Mounted(NamedTuple):
    """An application, the prefix of its paths, and its interface."""

    prefix: str
    app: Any
    interface: str

    @property
    def name(self) -> str:
        """What it is called in sentences."""
        return "the application" if self.prefix == "/" else f"the application at {self.prefix}"


def load_all(config: Config, objects: Iterable[Any], demo: Callable[[], Any]) -> list[Mounted]:
    """Finds every application of a configuration; `objects` are those that have no import string, in their order."""
    waiting = iter(objects)
    found = []
    for prefix, spec in config.mounts():
        with _about(prefix):
            if spec is not None:
                found.append(Mounted(prefix, *_load(config, spec)))
                continue
            app = next(waiting, None)
            if app is None:
                found.append(Mounted(prefix, demo(), "asgi"))
            else:
                found.append(Mounted(prefix, app, _check(config, app, "the application")))
    return found


def check_names(config: Config) -> None:
    """Raises :class:`Exit` (2) for an import string that cannot name anything, whatever there is to import."""
    for prefix, spec in config.mounts():
        if spec is not None:
            with _about(prefix):
                _split(spec)


@contextmanager
def _about(prefix: str) -> Iterator[None]:
    """Lets a sentence say which mount it is about."""
    try:
        yield
    except Exit as end:
        if prefix == "/":
            raise
        raise Exit(end.code, f"--mount {prefix}: {end.message}") from end.__cause__


def _load(config: Config, spec: str) -> tuple[Any, str]:
    """Imports what an import string names and returns it with its interface."""
    module_name, attribute = _split(spec)
    _search_first(config.app_dir)
    module = _import(module_name)
    found, name = _attribute(module, module_name, attribute)
    if config.factory:
        found = _call_factory(found, name)
        name += "()"
    return found, _check(config, found, name)


def _check(config: Config, app: Any, name: str) -> str:
    """Says which interface an application has, or raises :class:`Exit` when it cannot be served."""
    if not callable(app):
        _fail(f"{name} is of type {type(app).__name__} and cannot be called; name an ASGI or WSGI application")
    if config.interface != "auto":
        return config.interface
    kind = interface_of(app)
    if kind == "asgi2":
        _fail(
            f"{name} takes one argument, as ASGI 2 applications did; wrap it in"
            " asgiref.compatibility.guarantee_single_callable"
        )
    if kind == "factory":
        _fail(f"{name} takes no arguments, so it looks like a factory; add --factory")
    if kind not in ("asgi", "wsgi"):
        # With several applications the option would say it of all of them.
        _fail(
            f"it cannot be told whether {name} is ASGI or WSGI; add --interface asgi or --interface wsgi, or wrap it in"
            " a function of (scope, receive, send) or (environ, start_response)"
        )
    return kind


def interface_of(app: Any) -> str:
    """``asgi``, ``wsgi``, ``asgi2`` or ``factory`` from the look of an object, or nothing where it cannot be told."""
    inner = app
    while isinstance(inner, partial):
        inner = inner.func
    if inspect.isclass(inner):
        # Calling the class makes an awaitable: a class of that kind takes the three arguments in its constructor.
        if hasattr(inner, "__await__"):
            return "asgi"
    elif inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(getattr(inner, "__call__", None)):  # noqa: B004
        return "asgi"
    try:
        parameters = inspect.signature(app).parameters.values()
    except (TypeError, ValueError):
        return ""
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return ""
    needed = [
        parameter
        for parameter in parameters
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        and parameter.default is parameter.empty
    ]
    return {0: "factory", 1: "asgi2", 2: "wsgi", 3: "asgi"}.get(len(needed), "")


def _split(app: str) -> tuple[str, str]:
    module, colon, attribute = app.partition(":")
    if module.endswith(".py") or os.sep in module:
        folder, name = os.path.split(os.path.normpath(module).removesuffix(".py"))
        # A folder below the current one may be a package; any other has to be searched.
        outside = os.path.isabs(folder) or folder.split(os.sep)[0] == os.pardir
        guess = name if outside or not folder else f"{folder.replace(os.sep, '.')}.{name}"
        where = f" --app-dir {folder}" if outside else ""
        _wrong(f"APP is a module, not a file: give {guess}:{attribute or 'app'}{where}")
    parts = module.split(".") + (attribute.split(".") if colon else [])
    if not all(part.isidentifier() for part in parts):
        if app.endswith("()"):
            _wrong(f"'{app}' is a call, and APP a name: give {app[:-2]} --factory")
        _wrong(f"'{app}' is no application; give MODULE:ATTR, such as main:app")
    return module, attribute


def _search_first(app_dir: str | None) -> None:
    try:
        folder = os.path.abspath(app_dir or ".")
    except FileNotFoundError:
        _fail("the current folder is gone; start in one that exists, or name the application's with --app-dir")
    if not os.path.isdir(folder):
        _fail(f"--app-dir: there is no folder {folder}; name the one with the application's module in it")
    if sys.path[:1] != [folder]:
        sys.path.insert(0, folder)


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            where = sys.path[0]
            raise Exit(
                1,
                f"there is no module '{error.name}' in {where} or among the installed packages;"
                " check its name, or name its folder with --app-dir",
            ) from None
        raise _raised(f"importing '{name}'", error) from error
    except (Exception, SystemExit) as error:
        raise _raised(f"importing '{name}'", error) from error


def _attribute(module: ModuleType, module_name: str, path: str) -> tuple[Any, str]:
    if not path:
        for candidate in DEFAULT_ATTRIBUTES:
            if hasattr(module, candidate):
                return getattr(module, candidate), f"{module_name}:{candidate}"
        _fail(f"module '{module_name}' has neither 'app' nor 'application'; name the application as {module_name}:ATTR")
    found: Any = module
    for part in path.split("."):
        owner = found
        try:
            found = getattr(owner, part)
        except AttributeError as error:
            # From the application's own __getattr__ or property it may be about something else: then it is shown.
            about = f"'{module_name}:{path}' does not exist: {_name_of(owner)} has no attribute '{part}'"
            cause = None if error.name == part and error.obj is owner else error
            raise Exit(1, f"{about}; {_hint(owner, part)}") from cause
        except (Exception, SystemExit) as error:
            raise _raised(f"looking up '{module_name}:{path}'", error) from error
    return found, f"{module_name}:{path}"


def _name_of(owner: Any) -> str:
    return f"module '{owner.__name__}'" if inspect.ismodule(owner) else f"the {type(owner).__name__}"


def _hint(owner: Any, missing: str) -> str:
    names = [name for name in dir(owner) if not name.startswith("_")]
    close = difflib.get_close_matches(missing, names, 1)
    for candidate in (*close, *DEFAULT_ATTRIBUTES):
        if candidate in names:
            return f"did you mean '{candidate}'?"
    return "name the application there is"


def _call_factory(factory: Callable[[], Any], name: str) -> Any:
    if not callable(factory):
        _fail(f"{name} is of type {type(factory).__name__} and cannot be called; leave --factory out")
    try:
        app = factory()
    except (Exception, SystemExit) as error:
        raise _raised(f"the factory {name}", error) from error
    if inspect.iscoroutine(app):
        app.close()
        _fail(f"the factory {name} is a coroutine function; make it a plain function, or leave --factory out")
    return app


def _raised(what: str, error: BaseException) -> Exit:
    code = error.code if isinstance(error, SystemExit) and isinstance(error.code, int) and error.code else 1
    line = " ".join(str(error).split())
    told = f"{type(error).__name__}: {line}" if line else type(error).__name__
    fix = "install it for this interpreter" if isinstance(error, ModuleNotFoundError) else "fix the application"
    return Exit(code, f"{what} failed with {told}; {fix}")


def _fail(sentence: str) -> NoReturn:
    raise Exit(1, sentence)


def _wrong(sentence: str) -> NoReturn:
    raise Exit(2, sentence)
