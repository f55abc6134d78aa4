// 16 lanes of pairs of bfloat16, multiplied and summed by one instruction.
#include <immintrin.h>

#include "everything_attention.hpp"

extern const AttentionKernel attention_avx512bf16_bfloat16 = Blocked<Bfloat16Shares<Bfloat16Pairs<16, 12>>>::kernel();
