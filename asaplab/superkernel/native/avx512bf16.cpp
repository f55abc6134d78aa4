// 16 lanes of pairs of bfloat16, multiplied and summed by one instruction.
#include <immintrin.h>

#include "everything.hpp"

extern const Kernel avx512bf16_bfloat16 = Mlp<Bfloat16Pairs<16, 12>>::kernel();
