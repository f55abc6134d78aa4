// Combine: each token's K result rows, weighted and summed in order of k. Included inside an anonymous namespace, after
// format.hpp.

template <class T>
struct Summed {
  typedef typename T::V V;
  typedef typename V::F F;
  typedef typename T::X X;
  static constexpr int64_t LANES = T::LANES;

  static inline F load(const float* p) { return V::load(p); }
  static inline F load(const uint16_t* p) { return V::load_bfloat16(p); }

  static inline F sum(const WeightedSum& job, const int64_t* at, const float* weight, int64_t h) {
    const X* rows = (const X*)job.rows + h;
    F total = load(rows + at[0] * job.H) * weight[0];
    for (int64_t k = 1; k < job.K; k++) total = load(rows + at[k] * job.H) * weight[k] + total;
    return total;
  }

  static void run(const WeightedSum& job, int64_t first, int64_t last) {
    for (int64_t i = first; i < last; i++) {
      const int64_t* at = job.at + i * job.K;
      const float* weight = job.weights + i * job.K;
      X* out = (X*)job.out + i * job.H;
      int64_t h = 0;
      for (; h + LANES <= job.H; h += LANES) T::store(out + h, sum(job, at, weight, h));
      if (h < job.H) rest(job, at, weight, h, out + h);
    }
  }

  // The last elements of a row, by the same instructions on a copy: a row's end is not the memory's.
  static void rest(const WeightedSum& job, const int64_t* at, const float* weight, int64_t h, X* out) {
    const int64_t left = job.H - h;
    X line[LANES] = {}, result[LANES];
    std::memcpy(line, (const X*)job.rows + at[0] * job.H + h, left * sizeof(X));
    F total = load(line) * weight[0];
    for (int64_t k = 1; k < job.K; k++) {
      std::memcpy(line, (const X*)job.rows + at[k] * job.H + h, left * sizeof(X));
      total = load(line) * weight[k] + total;
    }
    T::store(result, total);
    std::memcpy(out, result, left * sizeof(X));
  }
};
