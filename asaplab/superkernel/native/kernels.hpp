// What every instruction set offers: packing of weights, the MLP of one block of rows, and its second product alone.
// Plain function pointers, so that nothing compiled for one instruction set is called on another.
#pragma once
#include <cstddef>
#include <cstdint>

struct Shape {
  int64_t H, I;
};

struct Block {  // rows of one expert
  const void* x;
  int64_t x_stride;  // elements from row to row
  int64_t rows;
  const void* gate_up;  // packed
  const void* down;     // packed
  void* out;
  int64_t out_stride;
};

struct Kernel {
  int64_t most_rows;  // of a block
  int64_t (*packed_gate_up)(Shape);  // elements
  int64_t (*packed_down)(Shape);
  int64_t (*scratch_bytes)(Shape);
  void (*pack_gate_up)(Shape, const void* weight, void* packed);
  void (*pack_down)(Shape, const void* weight, void* packed);
  void (*mlp)(Shape, const Block&, void* scratch);
  void (*linear)(Shape, const Block&, void* scratch);  // rows of I times the down weight
};

extern const Kernel avx2_float32, avx2_bfloat16;
extern const Kernel avx512_float32, avx512_bfloat16;
extern const Kernel avx512bf16_bfloat16;
extern const Kernel amx_bfloat16;
extern const Kernel wide_float32, wide_bfloat16;
