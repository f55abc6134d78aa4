"""A papermill engine that tells how many code cells are done and talks to its kernel over local sockets only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from papermill.engines import NBClientEngine, papermill_engines


def register(name: str, report: Callable[[int, int], None]) -> str:
    """Register an engine that calls ``report(done, total)`` after each code cell; returns the engine's name."""

    class Engine(NBClientEngine):
        @classmethod
        def execute_managed_notebook(cls, nb_man: Any, kernel_name: str, **settings: Any) -> Any:
            codes = [cell.cell_type == "code" for cell in nb_man.nb.cells]
            complete = nb_man.cell_complete

            def counted(cell: Any, cell_index: int | None = None, **more: Any) -> None:
                complete(cell, cell_index=cell_index, **more)
                if cell_index is not None and codes[cell_index]:
                    report(sum(codes[: cell_index + 1]), sum(codes))

            nb_man.cell_complete = counted
            own = {"kernel_manager_class": _local(), "extra_arguments": ["--IPKernelApp.log_level=CRITICAL"]}
            return super().execute_managed_notebook(nb_man, kernel_name, **own, **settings)

    engine = f"asaplab-{name}"
    papermill_engines.register(engine, Engine)
    return engine


def _local() -> type:
    from jupyter_client.manager import AsyncKernelManager
    from traitlets import default

    class LocalKernel(AsyncKernelManager):
        """Unix sockets: no ports to run out of or to collide when many kernels start at once."""

        @default("transport")
        def _transport_default(self) -> str:
            return "ipc"

    return LocalKernel
