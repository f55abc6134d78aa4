// The AVX512 kernels' text with vectors that the compiler splits: what a machine without AVX512 can test of them.
#include "everything.hpp"

extern const Kernel wide_float32 = Mlp<Float32<16, 12>>::kernel();
extern const Kernel wide_bfloat16 = Mlp<Bfloat16Pairs<16, 12>>::kernel();
