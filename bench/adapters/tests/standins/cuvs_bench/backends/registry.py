"""Where backends and their configurations are registered by name."""

from __future__ import annotations

_backends: dict[str, type] = {}
_loaders: dict[str, type] = {}


class _Registry:
    def is_registered(self, name: str) -> bool:
        return name in _backends


def get_registry() -> _Registry:
    return _Registry()


def register_backend(name: str, backend_class: type) -> None:
    if name in _backends:
        raise ValueError(f"{name} is registered already")
    _backends[name] = backend_class


def register_config_loader(name: str, loader_class: type) -> None:
    _loaders[name] = loader_class


def list_config_loaders() -> dict[str, type]:
    return dict(_loaders)


def get_backend_class(name: str) -> type:
    return _backends[name]


def get_config_loader(name: str) -> type:
    return _loaders[name]
