// 16 lanes; 12 x 32 tiles fill 24 of 32 registers.
#include "everything_attention.hpp"

extern const AttentionKernel attention_avx512_float32 = Blocked<FloatShares<Float32<16, 12>>>::kernel();
extern const AttentionKernel attention_avx512_bfloat16 = Blocked<FloatShares<Bfloat16Widened<16, 12>>>::kernel();
