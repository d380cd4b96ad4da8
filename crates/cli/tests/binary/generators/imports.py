"""Imports every module of a generated client: much of what a generator gets wrong shows only then."""

import importlib
import pkgutil


def import_all(name):
    module = importlib.import_module(name)
    below = pkgutil.iter_modules(getattr(module, "__path__", []))
    return 1 + sum(import_all(f"{name}.{part.name}") for part in below)
