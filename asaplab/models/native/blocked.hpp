// Causal attention with an online softmax. Included inside an anonymous namespace, after format.hpp.
//
// Keys and values of the head are packed once: keys as panels of NR keys, values as panels of NR dimensions, both in
// blocks of KEYS keys. A block of QUERIES queries then visits the key blocks: scores, softmax, weighted values. A
// query's sums run over key blocks counted from the sequence's start, and keys beyond its position add exact zeros,
// so its bits do not depend on how the prompt is cut or on the queries beside it.

// Keys and values of a long prompt come from far away, so a block's queries are many.
static constexpr int64_t KEYS = 128, QUERIES = 192;

template <class T>
struct Blocked {
  typedef typename T::V V;
  typedef typename V::F F;
  typedef typename T::X X;
  typedef typename T::A A;
  static constexpr int64_t NR = T::NR, MR = T::MR, PAIR = T::PAIR, LANES = T::LANES;
  static_assert(QUERIES % MR == 0 && KEYS % NR == 0, "blocks are whole panels");

  // MR rows (row-major, `stride` steps apart) times one panel, over `steps`.
  static inline void multiply(const A* a, int64_t stride, const X* b, int64_t steps, F (&sum)[MR][2]) {
#pragma GCC unroll 4
    for (int64_t s = 0; s < steps; s++, b += NR * PAIR) {
      F b0, b1;
      T::weights(b, b0, b1);
#pragma GCC unroll 16
      for (int i = 0; i < MR; i++) {
        const A x = a[i * stride + s];
        sum[i][0] = T::multiply_add(x, b0, sum[i][0]);
        sum[i][1] = T::multiply_add(x, b1, sum[i][1]);
      }
    }
  }

  struct Memory {  // of one call
    X *keys, *values;
    A *queries, *shares;  // a block's queries, and its softmax row by row
    float *scores, *out;
    F* sum;  // of the shares, lane by lane
    float *most, *fade;
  };

  static int64_t steps_of(int64_t n) { return up_to(n, PAIR) / PAIR; }

  static int64_t lay(const Attention& job, char* base, Memory* memory) {
    const int64_t n = up_to(job.start + job.queries, KEYS), dk = steps_of(job.d) * PAIR, dv = up_to(job.dv, NR);
    Carver carver{base};
    Memory m;
    m.keys = carver.take<X>(n * dk);
    m.values = carver.take<X>(n * dv);
    m.queries = carver.take<A>(QUERIES * steps_of(job.d));
    m.shares = carver.take<A>(QUERIES * (KEYS / PAIR));
    m.scores = carver.take<float>(QUERIES * KEYS);
    m.out = carver.take<float>(QUERIES * dv);
    m.sum = carver.take<F>(QUERIES);
    m.most = carver.take<float>(QUERIES);
    m.fade = carver.take<float>(QUERIES);
    if (memory) *memory = m;
    return carver.at;
  }

  static int64_t scratch_bytes(const Attention& job) { return lay(job, nullptr, nullptr); }

  // Panels of NR rows of k: [panel][step of d][NR x PAIR]. Rows beyond n are zeros.
  static void pack_keys(const Attention& job, int64_t n, X* to) {
    const int64_t steps = steps_of(job.d);
    for (int64_t panel = 0; panel < up_to(n, KEYS); panel += NR, to += steps * NR * PAIR) {
      for (int column = 0; column < NR; column++) {
        X* here = to + T::place(column);
        const X* row = (const X*)job.k + (panel + column) * job.k_row;
        const int64_t given = panel + column < n ? job.d : 0;
        for (int64_t s = 0; s < steps; s++, here += NR * PAIR)
          for (int64_t half = 0; half < PAIR; half++)
            here[half] = s * PAIR + half < given ? row[s * PAIR + half] : (X)0;
      }
    }
  }

  // Blocks of KEYS rows of v, in each panels of NR dimensions: [block][panel][step of keys][NR x PAIR].
  static void pack_values(const Attention& job, int64_t n, X* to) {
    for (int64_t block = 0; block < n; block += KEYS)
      for (int64_t panel = 0; panel < job.dv; panel += NR)
        for (int64_t key = block; key < block + KEYS; key += PAIR, to += NR * PAIR)
          for (int64_t half = 0; half < PAIR; half++) {
            const X* row = (const X*)job.v + (key + half) * job.v_row + panel;
            const int64_t given = key + half >= n ? 0 : job.dv - panel < NR ? job.dv - panel : NR;
            for (int64_t column = 0; column < NR; column++)
              to[T::place(column) + half] = column < given ? row[column] : (X)0;
          }
  }

  static void take_queries(const Attention& job, int64_t head, int64_t first, int64_t rows, A* to) {
    const int64_t steps = steps_of(job.d);
    std::memset((void*)to, 0, up_to(rows, MR) * steps * sizeof(A));
    for (int64_t i = 0; i < rows; i++, to += steps) {
      const X* row = (const X*)job.q + head * job.q_head + (first + i) * job.q_row;
      for (int64_t k = 0; k < job.d; k++) T::put(to + k / PAIR, k % PAIR, row[k]);
    }
  }

  // One row of scores becomes shares e^(score - most); `seen` of the block's keys are at or before the query.
  static void softmax_row(float* score, A* share, int64_t seen, float scale, float& most, float& fade, F& sum) {
    typedef typename V::S S;
    S lane;
    for (int l = 0; l < LANES; l++) lane[l] = l;
    const F nothing = V::broadcast(-3e38f);
    F top = nothing;
    for (int64_t j = 0; j < seen; j += LANES) {
      const F x = V::load(score + j) * scale;
      const F counted = lane + (int32_t)j < (int32_t)seen ? x : nothing;
      V::store(score + j, counted);
      top = top > counted ? top : counted;
    }
    float now = most;
    for (int l = 0; l < LANES; l++) now = now > top[l] ? now : top[l];
    const float ratio = now == most ? 1.f : V::exp(V::broadcast(most - now))[0];
    F block = {};
    for (int64_t j = 0; j < KEYS; j += LANES) {
      F e = {};
      if (j < seen) {
        e = V::exp(V::load(score + j) - now);
        e = lane + (int32_t)j < (int32_t)seen ? e : F{};
      }
      e = T::rounded_share(e);
      block = block + e;
      T::put_shares(share, j, e);
    }
    sum = sum * ratio + block;
    most = now;
    fade = ratio;
  }

  static void attend(const Attention& job, void* scratch) {
    Memory memory;
    lay(job, (char*)scratch, &memory);
    const int64_t n = job.start + job.queries;
    pack_keys(job, n, memory.keys);
    pack_values(job, n, memory.values);
    for (int64_t head = 0; head < job.heads; head++)
      for (int64_t first = 0; first < job.queries; first += QUERIES)
        block(job, memory, head, first, job.queries - first < QUERIES ? job.queries - first : QUERIES);
  }

  static void block(const Attention& job, const Memory& memory, int64_t head, int64_t first, int64_t rows) {
    const int64_t steps = steps_of(job.d), dv = up_to(job.dv, NR), panels = up_to(rows, MR);
    const int64_t position = job.start + first, end = position + rows;
    take_queries(job, head, first, rows, memory.queries);
    std::memset(memory.out, 0, panels * dv * sizeof(float));
    for (int64_t i = 0; i < panels; i++) {
      memory.sum[i] = F{};
      memory.most[i] = -3e38f;
    }
    for (int64_t key = 0; key < end; key += KEYS) {
      const int64_t keys = end - key < KEYS ? end - key : KEYS;  // that some query of the block sees
      for (int64_t panel = 0; panel < keys; panel += NR) {
        const X* b = memory.keys + (key + panel) * steps * PAIR;
        for (int64_t r = 0; r < panels; r += MR) {
          if (key + panel >= position + r + MR) continue;  // all of it lies after these queries
          F sum[MR][2] = {};
          multiply(memory.queries + r * steps, steps, b, steps, sum);
          for (int i = 0; i < MR; i++) {
            V::store(memory.scores + (r + i) * KEYS + panel, sum[i][0]);
            V::store(memory.scores + (r + i) * KEYS + panel + LANES, sum[i][1]);
          }
        }
      }
      for (int64_t i = 0; i < panels; i++) {
        const int64_t before = position + i + 1 - key, seen = before < 0 ? 0 : before < KEYS ? before : KEYS;
        softmax_row(memory.scores + i * KEYS, memory.shares + i * (KEYS / PAIR), seen, job.scale, memory.most[i],
                    memory.fade[i], memory.sum[i]);
      }
      const X* values = memory.values + key * dv;
      for (int64_t column = 0; column < dv; column += NR, values += KEYS * NR) {
        for (int64_t r = 0; r < panels; r += MR) {
          const int64_t last = position + r + MR - key, counted = last < keys ? last : keys;
          if (counted <= 0) continue;  // as above
          F sum[MR][2] = {};
          multiply(memory.shares + r * (KEYS / PAIR), KEYS / PAIR, values, steps_of(counted), sum);
          for (int i = 0; i < MR; i++) {
            float* out = memory.out + (r + i) * dv + column;
            V::store(out, V::load(out) * memory.fade[r + i] + sum[i][0]);
            V::store(out + LANES, V::load(out + LANES) * memory.fade[r + i] + sum[i][1]);
          }
        }
      }
    }
    for (int64_t i = 0; i < rows; i++) {
      float total = 0;
      for (int l = 0; l < LANES; l++) total += memory.sum[i][l];
      const float part = 1.f / total;
      X* to = (X*)job.out + head * job.out_head + (first + i) * job.out_row;
      const float* from = memory.out + i * dv;
      int64_t c = 0;
      for (; c + LANES <= job.dv; c += LANES) T::store(to + c, V::load(from + c) * part);
      if (c < job.dv) {
        X rest[LANES];
        T::store(rest, V::load(from + c) * part);
        std::memcpy(to + c, rest, (job.dv - c) * sizeof(X));
      }
    }
  }

  static AttentionKernel kernel() { return {scratch_bytes, attend, Summed<T>::run}; }
};
