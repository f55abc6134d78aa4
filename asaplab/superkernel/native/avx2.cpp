// 8 lanes; 6 x 16 tiles fill 12 of 16 registers.
#include "everything.hpp"

extern const Kernel avx2_float32 = Mlp<Float32<8, 6>>::kernel();
extern const Kernel avx2_bfloat16 = Mlp<Bfloat16Widened<8, 6>>::kernel();
