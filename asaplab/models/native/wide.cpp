// The AVX512 kernels' text with vectors that the compiler splits: what a machine without AVX512 can test of them.
#include "everything_attention.hpp"

namespace {
struct Dot {
  static inline Vector<16>::F add(Vector<16>::U a, Vector<16>::F b, Vector<16>::F c) {
    typedef Vector<16>::F F;
    typedef Vector<16>::U U;
    c = (F)(a & 0xffff0000u) * (F)((U)b & 0xffff0000u) + c;
    return (F)(a << 16) * (F)((U)b << 16) + c;
  }
};
}  // namespace

extern const AttentionKernel attention_wide_float32 = Blocked<FloatShares<Float32<16, 12>>>::kernel();
extern const AttentionKernel attention_wide_bfloat16 = Blocked<Bfloat16Shares<Bfloat16Pairs<16, 12, Dot>>>::kernel();
