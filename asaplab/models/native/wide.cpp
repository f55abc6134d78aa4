// The AVX512 kernels' text with vectors that the compiler splits: what a machine without AVX512 can test of them.
#include "everything_attention.hpp"

extern const AttentionKernel attention_wide_float32 = Blocked<FloatShares<Float32<16, 12>>>::kernel();
extern const AttentionKernel attention_wide_bfloat16 = Blocked<Bfloat16Shares<Bfloat16Pairs<16, 12>>>::kernel();
