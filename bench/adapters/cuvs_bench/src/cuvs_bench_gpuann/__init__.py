"""gpuann as a backend of cuvs-bench: registered by entry points, under the name gpuann."""

__all__ = ["register"]


def register() -> None:
    """Register backend and configuration; a second call does nothing."""
    from cuvs_bench.backends.registry import (
        get_registry,
        list_config_loaders,
        register_backend,
        register_config_loader,
    )

    from .backend import GpuannBackend
    from .loader import GpuannConfigLoader

    if not get_registry().is_registered("gpuann"):
        register_backend("gpuann", GpuannBackend)
    if "gpuann" not in list_config_loaders():
        register_config_loader("gpuann", GpuannConfigLoader)
