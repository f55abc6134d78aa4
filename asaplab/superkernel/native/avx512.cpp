// 16 lanes; 12 x 32 tiles fill 24 of 32 registers.
#include "everything.hpp"

extern const Kernel avx512_float32 = Mlp<Float32<16, 12>>::kernel();
extern const Kernel avx512_bfloat16 = Mlp<Bfloat16Widened<16, 12>>::kernel();
