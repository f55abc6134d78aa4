#include <nanobind/nanobind.h>

#include "core.hpp"

namespace nb = nanobind;

NB_MODULE(_core, m) {
  auto unlocked = nb::call_guard<nb::gil_scoped_release>();
  m.attr("ABI") = asap::ABI;
  m.attr("TIMED_OUT") = static_cast<int64_t>(asap::TIMED_OUT);
  m.attr("ABORTED") = static_cast<int64_t>(asap::ABORTED);
  m.attr("PUT_WORDS") = sizeof(asap::Put) / 8;
  m.def("now_ns", &asap::now_ns);
  m.def("load", &asap::load);
  m.def("store", &asap::store);
  m.def("clear", &asap::clear);
  m.def("heard", &asap::heard);
  m.def("ring", &asap::ring);
  m.def("loads", &asap::loads);
  m.def("count_ready", &asap::count_ready);
  m.def("wait_bell", &asap::wait_bell, unlocked);
  m.def("wait_at_least", &asap::wait_at_least, unlocked);
  m.def("put_all", &asap::put_all, unlocked);
  m.def("move_rows", &asap::move_rows, unlocked);
  m.def("plan", &asap::plan, unlocked);
}
