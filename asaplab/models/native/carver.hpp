// Cuts one piece of memory into aligned arrays. Included inside an anonymous namespace, after vector.hpp.

struct Carver {
  char* base;
  int64_t at = 0;  // bytes taken

  template <class E>
  E* take(int64_t count) {
    E* here = (E*)(base + at);
    at += up_to(count * (int64_t)sizeof(E), 64);
    return here;
  }
};
