// 16 lanes of pairs of bfloat16, multiplied and summed by one instruction.
#include <immintrin.h>

#include "everything_attention.hpp"

namespace {
struct Dot {
  static inline Vector<16>::F add(Vector<16>::U a, Vector<16>::F b, Vector<16>::F c) {
    return _mm512_dpbf16_ps((__m512)c, (__m512bh)a, (__m512bh)b);
  }
};
}  // namespace

extern const AttentionKernel attention_avx512bf16_bfloat16 =
    Blocked<Bfloat16Shares<Bfloat16Pairs<16, 12, Dot>>>::kernel();
