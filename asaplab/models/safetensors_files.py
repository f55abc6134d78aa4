"""The safetensors files of a checkpoint: which file holds which tensor, checked from the headers alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from asaplab.errors import InputError

_INDEX, _SINGLE = "model.safetensors.index.json", "model.safetensors"
_SUPPORTED = ("F64", "F32", "BF16", "F16")
_FP8 = "F8_E4M3"
_SCALE = "_scale_inv"


class SafetensorsFiles:
    """Reads tensors, or slices of them, from a single file or an index of shards; opens only files it is asked for."""

    def __init__(self, directory: Path, fp8_block: tuple[int, int] | None) -> None:
        self.directory = directory
        self.fp8_block = fp8_block
        self._open: dict[str, Any] = {}
        self._file_of = self._locate()

    def _locate(self) -> dict[str, str]:
        index = self.directory / _INDEX
        if index.is_file():
            try:
                return dict(json.loads(index.read_text())["weight_map"])
            except (UnicodeDecodeError, json.JSONDecodeError, KeyError, TypeError, ValueError):
                raise InputError(f"{index} has no readable weight_map; download it again") from None
        if not (self.directory / _SINGLE).is_file():
            raise InputError(f"{self.directory} holds neither {_SINGLE} nor {_INDEX}; download the weights too")
        return dict.fromkeys(self._handle(_SINGLE).keys(), _SINGLE)

    def _handle(self, file: str) -> Any:
        if file not in self._open:
            path = self.directory / file
            if not path.is_file():
                raise InputError(f"{path} is named in {_INDEX} but does not exist; download the missing shard")
            try:
                self._open[file] = safe_open(path, framework="pt")  # type: ignore[no-untyped-call]
            except SafetensorError as broken:
                raise InputError(f"{path} is truncated or not safetensors ({broken}); download it again") from None
        return self._open[file]

    def _slice(self, name: str) -> Any:
        if name not in self._file_of:
            raise InputError(f"{self.directory}: tensor {name} is missing; config.json and the weights do not match")
        try:
            return self._handle(self._file_of[name]).get_slice(name)
        except SafetensorError:
            raise InputError(
                f"{self.directory / self._file_of[name]} lacks tensor {name}, which {_INDEX} says it holds; "
                "download it again"
            ) from None

    def check(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Checks presence, shape and dtype of the tensors from the headers. No tensor is read.

        Raises:
            InputError: the first tensor that is missing, has another shape, or has a dtype that is not supported.
        """
        for name, shape in shapes.items():
            view = self._slice(name)
            if tuple(view.get_shape()) != tuple(shape):
                raise InputError(
                    f"{self.directory}: tensor {name} has shape {tuple(view.get_shape())} but config.json asks for "
                    f"{tuple(shape)}; config.json and the weights do not match"
                )
            kind = view.get_dtype()
            if kind == _FP8 and self.fp8_block and len(shape) == 2:
                self._check_scale(name, shape, self.fp8_block)
            elif kind not in _SUPPORTED:
                raise InputError(
                    f"{self.directory}: tensor {name} has dtype {kind}, which is not supported; "
                    f"use {', '.join(_SUPPORTED)}, or {_FP8} with block scales"
                )

    def _check_scale(self, name: str, shape: tuple[int, ...], block: tuple[int, int]) -> None:
        needed = tuple(-(-size // side) for size, side in zip(shape, block))
        given = tuple(self._slice(name + _SCALE).get_shape())
        if given != needed:
            raise InputError(
                f"{self.directory}: tensor {name + _SCALE} has shape {given} but blocks of {block} need {needed}; "
                "config.json and the weights do not match"
            )

    def read(self, name: str, dtype: torch.dtype, rows: slice = slice(None), columns: slice = slice(None)) -> Tensor:
        """The tensor, or its rows and columns, in ``dtype``; fp8 blocks are multiplied by their scales.

        Raises:
            InputError: the tensor is missing, or holds NaN or infinity.
        """
        view = self._slice(name)
        value = view[rows, columns] if len(view.get_shape()) == 2 else view[rows]
        if view.get_dtype() == _FP8:
            value = value.float() * self._scales(name, view.get_shape(), rows, columns)
        if not torch.isfinite(value).all():
            raise InputError(
                f"{self.directory}: tensor {name} holds NaN or infinity; the checkpoint is damaged, download it again"
            )
        return value.to(dtype, copy=True).contiguous()

    def _scales(self, name: str, shape: list[int], rows: slice, columns: slice) -> Tensor:
        assert self.fp8_block is not None
        scale = self._slice(name + _SCALE)[:].float()
        row, column = (
            torch.arange(size)[part] // side for size, part, side in zip(shape, (rows, columns), self.fp8_block)
        )
        return scale[row][:, column]
