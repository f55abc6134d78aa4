// 8 lanes; 6 x 16 tiles fill 12 of 16 registers.
#include "everything_attention.hpp"

extern const AttentionKernel attention_avx2_float32 = Blocked<FloatShares<Float32<8, 6>>>::kernel();
extern const AttentionKernel attention_avx2_bfloat16 = Blocked<FloatShares<Bfloat16Widened<8, 6>>>::kernel();
