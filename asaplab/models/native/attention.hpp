// What every instruction set offers: causal attention of one KV head and the query heads that read it, and the weighted
// sum of experts' results. Plain function pointers, so that nothing compiled for one instruction set is called on another.
#pragma once
#include <cstddef>
#include <cstdint>

struct Attention {  // strides in elements; rows of q, k, v and out are contiguous
  const void* q;
  int64_t q_head, q_row;  // from query head to query head, from query to query
  const void* k;
  int64_t k_row;
  const void* v;
  int64_t v_row;
  void* out;
  int64_t out_head, out_row;
  int64_t heads;    // query heads
  int64_t queries;  // at positions start .. start + queries
  int64_t start;
  int64_t d, dv;
  float scale;
};

struct WeightedSum {  // rows and out of H elements; at and weights (tokens, K)
  const void* rows;
  const int64_t* at;
  const float* weights;
  int64_t K, H;
  void* out;
};

struct AttentionKernel {
  int64_t (*scratch_bytes)(const Attention&);
  void (*attend)(const Attention&, void* scratch);
  void (*weighted_sum)(const WeightedSum&, int64_t first, int64_t last);  // tokens
};

extern const AttentionKernel attention_avx2_float32, attention_avx2_bfloat16;
extern const AttentionKernel attention_avx512_float32, attention_avx512_bfloat16;
extern const AttentionKernel attention_avx512bf16_bfloat16;
extern const AttentionKernel attention_amx_bfloat16;
extern const AttentionKernel attention_wide_float32, attention_wide_bfloat16;
