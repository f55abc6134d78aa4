// How numbers are held and multiplied: float32; bfloat16 widened to float32 in registers; bfloat16 in pairs for
// instructions that sum two products. A step of a format consumes PAIR values of k for 2 * LANES columns.
// Included inside an anonymous namespace, after vector.hpp and dot.hpp.

template <int LANES_, int MR_>
struct Float32 {
  static constexpr int LANES = LANES_, MR = MR_, NR = 2 * LANES, PAIR = 1;
  typedef Vector<LANES> V;
  typedef float X;  // rows and weights in memory
  typedef float A;  // a row's share of one step in the packed row panel
  static inline void weights(const X* b, typename V::F& b0, typename V::F& b1) {
    b0 = V::load(b);
    b1 = V::load(b + LANES);
  }
  static inline typename V::F multiply_add(A a, typename V::F b, typename V::F c) { return V::broadcast(a) * b + c; }
  static inline int64_t place(int column) { return column; }
  static inline void put(A* a, int, X value) { *a = value; }
  static inline void put_float(A* a, int, float value) { *a = value; }
  static inline typename V::F rounded(typename V::F v) { return v; }
  static inline void store(X* p, typename V::F v) { V::store(p, v); }
};

template <int LANES_, int MR_>
struct Bfloat16Widened {
  static constexpr int LANES = LANES_, MR = MR_, NR = 2 * LANES, PAIR = 1;
  typedef Vector<LANES> V;
  typedef uint16_t X;
  typedef float A;
  // column l and column LANES + l share a 32-bit lane: a shift and a mask widen them
  static inline void weights(const X* b, typename V::F& b0, typename V::F& b1) {
    typename V::U both = *(const typename V::U*)b;
    b0 = (typename V::F)(both << 16);
    b1 = (typename V::F)(both & 0xffff0000u);
  }
  static inline typename V::F multiply_add(A a, typename V::F b, typename V::F c) { return V::broadcast(a) * b + c; }
  static inline int64_t place(int column) { return column < LANES ? 2 * column : 2 * (column - LANES) + 1; }
  static inline void put(A* a, int, X value) {
    uint32_t bits = (uint32_t)value << 16;
    std::memcpy(a, &bits, 4);
  }
  static inline void put_float(A* a, int, float value) { *a = value; }
  static inline typename V::F rounded(typename V::F v) { return V::round_bfloat16(v); }
  static inline void store(X* p, typename V::F v) { V::store_bfloat16(p, v); }
};

template <int LANES_, int MR_>
struct Bfloat16Pairs {
  static constexpr int LANES = LANES_, MR = MR_, NR = 2 * LANES, PAIR = 2;
  typedef Vector<LANES> V;
  typedef uint16_t X;
  typedef uint32_t A;
  static inline void weights(const X* b, typename V::F& b0, typename V::F& b1) {
    b0 = V::load((const float*)b);
    b1 = V::load((const float*)(b + 2 * LANES));
  }
  static inline typename V::F multiply_add(A a, typename V::F b, typename V::F c) {
    return Dot::add(a - typename V::U{}, b, c);
  }
  static inline int64_t place(int column) { return 2 * column; }  // and the next k beside it
  static inline void put(A* a, int half, X value) { std::memcpy((X*)a + half, &value, 2); }
  static inline void put_float(A* a, int half, float value) {  // the value is a bfloat16 already
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    put(a, half, (X)(bits >> 16));
  }
  static inline typename V::F rounded(typename V::F v) { return V::round_bfloat16(v); }
  static inline void store(X* p, typename V::F v) { V::store_bfloat16(p, v); }
};
