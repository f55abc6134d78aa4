// Causal attention in tile registers, as in blocked.hpp: keys and values of the head are packed once, a block of queries
// visits the key blocks with an online softmax. Here the softmax is the costlier half, so it works in powers of two.
#include <immintrin.h>

#include <cstring>

#include "attention.hpp"

namespace {
#include "vector.hpp"
#include "dot.hpp"
#include "format.hpp"
#include "weighted_sum.hpp"
#include "tiles.hpp"
#include "carver.hpp"

// A block's keys come from far away, so its queries are many. It proceeds in turns: a pair of stacks of 16 queries meets
// one block of keys.
constexpr int64_t KEYS = 512, QUERIES = 256, PAIR = 2 * ROWS;
constexpr float NOTHING = -3e38f;

int64_t steps_of(int64_t n) { return up_to(n, STEP) / STEP; }

struct Memory {  // of one call
  uint16_t *keys, *values;
  uint16_t *queries, *shares;  // a block's queries; the softmax of two turns
  float *scores, *out;         // of two turns [panel][row][32]; of the block [panel][row][32]
  float *sum, *most;           // of a row, lane by lane; in powers of two
};

int64_t lay(const Attention& job, char* base, Memory* memory) {
  const int64_t n = up_to(job.start + job.queries, KEYS), dv = up_to(job.dv, COLUMNS);
  Carver carver{base};
  Memory m;
  m.keys = carver.take<uint16_t>(n * up_to(job.d, STEP));
  m.values = carver.take<uint16_t>(n * dv);
  m.queries = carver.take<uint16_t>(QUERIES * up_to(job.d, STEP));
  m.shares = carver.take<uint16_t>(2 * PAIR * KEYS);
  m.scores = carver.take<float>(2 * PAIR * KEYS);
  m.out = carver.take<float>(QUERIES * dv);
  m.sum = carver.take<float>(QUERIES * 16);
  m.most = carver.take<float>(QUERIES);
  if (memory) *memory = m;
  return carver.at;
}

int64_t scratch_bytes(const Attention& job) { return lay(job, nullptr, nullptr); }

// The first `count` of 32 elements, then zeros.
__m512i some(const uint16_t* from, int64_t count) {
  const __mmask32 mask = count >= 32 ? ~0u : count <= 0 ? 0u : (1u << count) - 1;
  return _mm512_maskz_loadu_epi16(mask, from);
}

void transpose(__m512i (&r)[16]) {  // 16 x 16 elements of 32 bits
  __m512i t[16];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  for (int i = 0; i < 4; i++) {
    t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
  }
  for (int i = 0; i < 8; i++) {
    r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
    r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
  }
}

// [panel of 32 keys][step of d], each as `place` says. Keys beyond n are zeros.
void pack_keys(const Attention& job, int64_t n, uint16_t* to) {
  for (int64_t panel = 0; panel < n; panel += COLUMNS)
    for (int64_t step = 0; step < steps_of(job.d); step++, to += WEIGHTS)
      for (int64_t half = 0; half < COLUMNS; half += 16) {
        __m512i pairs[16];
        for (int i = 0; i < 16; i++) {
          const int64_t key = panel + half + i;
          pairs[i] = some((const uint16_t*)job.k + key * job.k_row + step * STEP, key < n ? job.d - step * STEP : 0);
        }
        transpose(pairs);
        for (int i = 0; i < 16; i++) _mm512_storeu_si512(to + place(2 * i, half), pairs[i]);
      }
}

// [block of KEYS keys][panel of 32 dimensions][step of keys].
void pack_values(const Attention& job, int64_t n, uint16_t* to) {
  alignas(64) uint16_t low[32], high[32];
  for (int i = 0; i < 16; i++) {
    low[2 * i] = i, low[2 * i + 1] = 32 + i;
    high[2 * i] = 16 + i, high[2 * i + 1] = 48 + i;
  }
  const __m512i low_half = _mm512_load_si512(low), high_half = _mm512_load_si512(high);
  for (int64_t block = 0; block < n; block += KEYS)
    for (int64_t panel = 0; panel < job.dv; panel += COLUMNS)
      for (int64_t key = block; key < block + KEYS; key += 2, to += 2 * COLUMNS) {
        const uint16_t* row = (const uint16_t*)job.v + key * job.v_row + panel;
        const __m512i even = some(row, key < n ? job.dv - panel : 0);
        const __m512i odd = some(row + job.v_row, key + 1 < n ? job.dv - panel : 0);
        _mm512_storeu_si512(to, _mm512_permutex2var_epi16(even, low_half, odd));
        _mm512_storeu_si512(to + COLUMNS, _mm512_permutex2var_epi16(even, high_half, odd));
      }
}

// [stack of 16 queries][step of d][16][32].
void take_queries(const Attention& job, int64_t head, int64_t first, int64_t rows, uint16_t* to) {
  for (int64_t i = 0; i < rows; i++) {
    const uint16_t* row = (const uint16_t*)job.q + head * job.q_head + (first + i) * job.q_row;
    uint16_t* at = to + i / ROWS * steps_of(job.d) * TILE + i % ROWS * STEP;
    for (int64_t k = 0; k < job.d; k += STEP, at += TILE) _mm512_storeu_si512(at, some(row + k, job.d - k));
  }
}

// 2^x to 3e-6 of its value, since shares are rounded to bfloat16; infinite beyond 2^128.
__m512 share_of(__m512 x) {
  const __m512 f = _mm512_reduce_ps(x, 0x09);
  __m512 p = _mm512_set1_ps(1.353416057e-02f);
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(5.201147472e-02f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(2.414427486e-01f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(6.930038360e-01f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.000002593e+00f));
  return _mm512_scalef_ps(p, x);
}

// One row of scores, of which a query sees the first `seen` of `keys`. It becomes a row of shares 2^(scale score - most),
// zeros beyond the seen keys, in pieces of CHUNK keys: small enough that a piece and the tiles' next products are in
// the processor's window together. `most` is the highest score of a query's first block of keys, so that one pass is
// enough for all others; only where a later block's sum in some lane is beyond FAR does it move, and then `finish` gives
// what earlier sums and results must be multiplied with.
constexpr int64_t CHUNK = 128;
constexpr float FAR = 0x1p64f;
static_assert(CHUNK % STEP == 0, "a piece is whole steps");

struct Row {
  const float* score;  // 32 lie together, then those of the other rows
  uint16_t* share;
  int64_t keys, whole;  // all; of the seen, in whole steps
  __mmask16 low, high;  // of the step after them
  float scale, most;
  __m512 sum, sum2;

  Row(const float* score, uint16_t* share, int64_t keys, int64_t seen, float scale, float before)
      : score(score), share(share), keys(keys), scale(scale), most(before) {
    whole = seen < 0 ? 0 : seen < keys ? seen / STEP * STEP : keys;
    const int64_t rest = seen > whole && whole < keys ? seen - whole : 0;
    low = rest >= 16 ? 0xffff : (1u << rest) - 1;
    high = rest <= 16 ? 0 : (1u << (rest - 16)) - 1;
    if (most == NOTHING) most = highest() * scale;
    sum = sum2 = _mm512_setzero_ps();
  }

  __m512 at(int64_t key, int half) const { return _mm512_loadu_ps(score + key / COLUMNS * PAIR * COLUMNS + half); }

  float highest() const {
    __m512 top = _mm512_set1_ps(NOTHING);
    for (int64_t key = 0; key < whole; key += STEP) top = _mm512_max_ps(top, _mm512_max_ps(at(key, 0), at(key, 16)));
    if (low) {
      top = _mm512_mask_max_ps(top, low, top, at(whole, 0));
      top = _mm512_mask_max_ps(top, high, top, at(whole, 16));
    }
    return _mm512_reduce_max_ps(top);
  }

  void shares(int64_t from, int64_t to) {
    const __m512 base = _mm512_set1_ps(most), factor = _mm512_set1_ps(scale);
    const float* scores = score + from / COLUMNS * PAIR * COLUMNS;
    uint16_t *here = share + from * ROWS, *end = share + to * ROWS, *last = share + whole * ROWS;
    __m512 first = sum, second = sum2;
    auto step = [&](__mmask16 first_half, __mmask16 second_half) {
      const __m512 x = _mm512_loadu_ps(scores), y = _mm512_loadu_ps(scores + 16);
      const __m512 p = _mm512_maskz_mov_ps(first_half, share_of(_mm512_fmsub_ps(x, factor, base)));
      const __m512 q = _mm512_maskz_mov_ps(second_half, share_of(_mm512_fmsub_ps(y, factor, base)));
      first = _mm512_add_ps(first, p);
      second = _mm512_add_ps(second, q);
      _mm512_storeu_si512(here, (__m512i)_mm512_cvtne2ps_pbh(q, p));
      scores += PAIR * COLUMNS, here += TILE;
    };
    while (here < end && here < last) step(0xffff, 0xffff);
    if (here < end && here == last && low) step(low, high);
    for (; here < end; here += TILE) _mm512_storeu_si512(here, _mm512_setzero_si512());
    sum = first, sum2 = second;
  }

  float finish(float* sums) {
    const __m512 before = _mm512_loadu_ps(sums);
    const __m512 here = _mm512_add_ps(sum, sum2);
    if (!_mm512_cmp_ps_mask(here, _mm512_set1_ps(FAR), _CMP_GT_OQ)) {
      _mm512_storeu_ps(sums, _mm512_add_ps(before, here));
      return 1.f;
    }
    const float above = highest() * scale - most, fade = _mm512_cvtss_f32(power_of_two(_mm512_set1_ps(-above)));
    most += above;
    sum = sum2 = _mm512_setzero_ps();
    shares(0, keys);
    _mm512_storeu_ps(sums, _mm512_fmadd_ps(before, _mm512_set1_ps(fade), _mm512_add_ps(sum, sum2)));
    return fade;
  }
};

// Queries first .. first + rows of the block (at most a pair of stacks) meet keys key .. key + keys.
struct Turn {
  const Attention* job;
  const Memory* memory;
  int64_t position;  // of the block's first query
  int64_t first, rows, key, keys, number;
  bool fades;  // some row's earlier results must be multiplied
  float fade[PAIR];

  int64_t key_steps() const { return steps_of(keys); }
  float* scores() const { return memory->scores + number % 2 * PAIR * KEYS; }
  uint16_t* shares() const { return memory->shares + number % 2 * PAIR * KEYS; }

  template <class Meanwhile>
  void product(const uint16_t* a, int64_t steps, const uint16_t* b, float* c, bool fresh, Meanwhile meanwhile) const {
    if (rows > ROWS)
      multiply<2>(a, steps * TILE, b, steps, c, fresh, meanwhile);
    else
      multiply<1>(a, steps * TILE, b, steps, c, fresh, meanwhile);
  }

  template <class Meanwhile>
  void score(Meanwhile meanwhile) const {
    const int64_t steps = steps_of(job->d);
    const uint16_t* b = memory->keys + key / COLUMNS * steps * WEIGHTS;
    for (int64_t panel = 0; panel < key_steps(); panel++)  // 32 keys
      product(memory->queries + first * steps * STEP, steps, b + panel * steps * WEIGHTS,
              scores() + panel * PAIR * COLUMNS, true, meanwhile);
  }

  Row row(int64_t i) const {
    return Row(scores() + i * COLUMNS, shares() + i / ROWS * key_steps() * TILE + i % ROWS * STEP, key_steps() * STEP,
               position + first + i + 1 - key, job->scale * 1.44269504f, memory->most[first + i]);
  }

  template <class Meanwhile>
  void weigh(Meanwhile meanwhile) const {
    const uint16_t* b = memory->values + key * up_to(job->dv, COLUMNS);
    float* out = memory->out + first * COLUMNS;
    for (int64_t panel = 0; panel < steps_of(job->dv); panel++, out += QUERIES * COLUMNS) {  // 32 dimensions
      for (int64_t i = 0; fades && key > 0 && i < rows; i++)  // the first block begins afresh
        for (float* half = out + i * COLUMNS; half < out + (i + 1) * COLUMNS; half += 16)
          _mm512_storeu_ps(half, _mm512_mul_ps(_mm512_loadu_ps(half), _mm512_set1_ps(fade[i])));
      product(shares(), key_steps(), b + panel * COLUMNS * KEYS, out, key == 0, meanwhile);
    }
  }

  bool next() {  // the turn after this one, if there is any: pairs in turn, then the next keys
    const int64_t queries = job->queries - (position - job->start) < QUERIES ? job->queries - (position - job->start) : QUERIES;
    number++;
    for (first += PAIR;; first += PAIR) {
      if (first >= queries) first = 0, key += KEYS;
      if (key >= position + queries) return false;
      rows = queries - first < PAIR ? queries - first : PAIR;
      const int64_t seen = position + first + rows - key;
      keys = seen < KEYS ? seen : KEYS;
      if (keys > 0) return true;
    }
  }
};

// A turn's softmax, piece by piece.
struct Softmax {
  Turn& turn;
  const int64_t keys, pieces;  // of all rows
  int64_t i = 0, key = 0;
  Row row;

  explicit Softmax(Turn& turn)
      : turn(turn), keys(turn.key_steps() * STEP), pieces(turn.rows * ((keys + CHUNK - 1) / CHUNK)), row(turn.row(0)) {}

  bool piece() {  // whether there was one left
    if (i == turn.rows) return false;
    const int64_t end = key + CHUNK < keys ? key + CHUNK : keys;
    row.shares(key, end);
    key = end;
    if (key < keys) return true;
    const int64_t at = turn.first + i;
    turn.fade[i] = row.finish(turn.memory->sum + at * 16);
    turn.fades |= turn.fade[i] != 1.f;
    turn.memory->most[at] = row.most;
    key = 0;
    if (++i < turn.rows) row = turn.row(i);
    return true;
  }
};

// While the vector units do one turn's softmax, the tiles finish the turn before and begin the one after.
void attend_block(const Attention& job, const Memory& memory, int64_t head, int64_t start, int64_t queries) {
  take_queries(job, head, start, queries, memory.queries);
  std::memset(memory.sum, 0, QUERIES * 16 * 4);
  for (int64_t i = 0; i < QUERIES; i++) memory.most[i] = NOTHING;
  Turn before{}, now{}, after{&job, &memory, job.start + start, -PAIR, 0, 0, 0, -1, false, {}};
  bool more = after.next();
  after.score([] {});
  for (bool begun = false; more; begun = true) {
    before = now, now = after, more = after.next();
    const int64_t steps = (begun ? steps_of(job.dv) * before.key_steps() : 0) + (more ? after.key_steps() * steps_of(job.d) : 0);
    Softmax softmax(now);
    int64_t due = 0;
    auto proceed = [&] {
      for (due += softmax.pieces; due >= steps; due -= steps) softmax.piece();
    };
    if (begun) before.weigh(proceed);
    if (more) after.score(proceed);
    while (softmax.piece()) continue;
  }
  now.weigh([] {});
  for (int64_t i = 0; i < queries; i++) {
    const float part = 1.f / _mm512_reduce_add_ps(_mm512_loadu_ps(memory.sum + i * 16));
    uint16_t* to = (uint16_t*)job.out + head * job.out_head + (start + i) * job.out_row;
    for (int64_t c = 0; c < job.dv; c += 16) {
      const float* from = memory.out + (c / COLUMNS * QUERIES + i) * COLUMNS + c % COLUMNS;
      const __m256i rounded = Rounding::bits((Rounding::F)_mm512_mul_ps(_mm512_loadu_ps(from), _mm512_set1_ps(part)));
      const __mmask16 mask = job.dv - c >= 16 ? 0xffff : (1u << (job.dv - c)) - 1;
      _mm256_mask_storeu_epi16(to + c, mask, rounded);
    }
  }
}

void attend(const Attention& job, void* scratch) {
  Memory memory;
  lay(job, (char*)scratch, &memory);
  pack_keys(job, job.start + job.queries, memory.keys);
  pack_values(job, job.start + job.queries, memory.values);
  const Tiles tiles;
  for (int64_t head = 0; head < job.heads; head++)
    for (int64_t first = 0; first < job.queries; first += QUERIES)
      attend_block(job, memory, head, first, job.queries - first < QUERIES ? job.queries - first : QUERIES);
}
}  // namespace

extern const AttentionKernel attention_amx_bfloat16 = {scratch_bytes, attend, Summed<Bfloat16Widened<16, 12>>::run};
