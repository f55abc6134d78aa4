// asaplab.models._attention: chooses the instruction set, deals KV heads to threads. Raw addresses in and out: the Python
// side checks shapes and keeps the memory alive.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "attention.hpp"
#include "scratch.hpp"

namespace nb = nanobind;

namespace {

constexpr int ABI = 2;  // raised with every change that the Python side must know of

const AttentionKernel& kernel_for(const std::string& set, bool bfloat16) {
#ifdef ASAPLAB_X86
  if (set == "avx2") return bfloat16 ? attention_avx2_bfloat16 : attention_avx2_float32;
  if (set == "avx512") return bfloat16 ? attention_avx512_bfloat16 : attention_avx512_float32;
  if (set == "avx512bf16") return bfloat16 ? attention_avx512bf16_bfloat16 : attention_avx512_float32;
#ifdef ASAPLAB_AMX
  if (set == "amx") return bfloat16 ? attention_amx_bfloat16 : attention_avx512_float32;
#endif
#endif
  if (set != "wide") throw std::invalid_argument("no attention kernel is called " + set);
  return bfloat16 ? attention_wide_bfloat16 : attention_wide_float32;
}

// q (heads, group, queries, d), k (heads, n, d), v (heads, n, dv), out like q; strides in elements, rows contiguous.
void attend(const std::string& set, bool bfloat16, int64_t heads, int64_t group, int64_t queries, int64_t start,
            int64_t d, int64_t dv, float scale, uintptr_t q, int64_t q_kv, int64_t q_head, int64_t q_row, uintptr_t k,
            int64_t k_head, int64_t k_row, uintptr_t v, int64_t v_head, int64_t v_row, uintptr_t out, int64_t out_kv,
            int64_t out_head, int64_t out_row, int threads) {
  const AttentionKernel& kernel = kernel_for(set, bfloat16);
  const int64_t element = bfloat16 ? 2 : 4;
  std::atomic<int64_t> next{0};
  auto work = [&] {
    for (int64_t h; (h = next++) < heads;) {
      const Attention job{(const void*)(q + h * q_kv * element),
                          q_head,
                          q_row,
                          (const void*)(k + h * k_head * element),
                          k_row,
                          (const void*)(v + h * v_head * element),
                          v_row,
                          (void*)(out + h * out_kv * element),
                          out_head,
                          out_row,
                          group,
                          queries,
                          start,
                          d,
                          dv,
                          scale};
      kernel.attend(job, own_scratch(kernel.scratch_bytes(job)));
    }
  };
  std::vector<std::thread> others;
  for (int t = 1; t < threads && t < heads; t++) others.emplace_back(work);
  work();
  for (auto& other : others) other.join();
}

constexpr int64_t SMALL = 1 << 20;  // elements read: below, another thread costs more than it takes

// out (n, H) from rows (any, H): the sum over k of weights (n, K) times the rows that at (n, K) names.
void weighted_sum(const std::string& set, bool bfloat16, int64_t n, int64_t K, int64_t H, uintptr_t rows, uintptr_t at,
                  uintptr_t weights, uintptr_t out, int threads) {
  const WeightedSum job{(const void*)rows, (const int64_t*)at, (const float*)weights, K, H, (void*)out};
  auto sum = kernel_for(set, bfloat16).weighted_sum;
  const int64_t parts = n * K * H < SMALL ? 1 : threads;
  std::vector<std::thread> others;
  for (int64_t t = 1; t < parts; t++) others.emplace_back([=] { sum(job, n * t / parts, n * (t + 1) / parts); });
  sum(job, 0, n / parts);
  for (auto& other : others) other.join();
}

}  // namespace

NB_MODULE(_attention, m) {
  m.attr("ABI") = ABI;
  m.def("attend", &attend, nb::call_guard<nb::gil_scoped_release>());
  m.def("weighted_sum", &weighted_sum, nb::call_guard<nb::gil_scoped_release>());
}
