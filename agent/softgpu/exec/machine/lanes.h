// SPDX-License-Identifier: Apache-2.0
// Makes handlers out of functions of single values: a loop over all lanes that the compiler
// vectorises, and one over the set bits when some lanes are off.
#pragma once

#include <bit>
#include <cstring>

#include "agent/softgpu/exec/machine/warp.h"

namespace gpuloom::softgpu {

// f(lane) for every executing lane.
template <class F>
inline void ForEach(uint32_t lanes, F f) {
  for (; lanes != 0; lanes &= lanes - 1) f(static_cast<uint32_t>(std::countr_zero(lanes)));
}

template <class D, class F>
inline Step Apply(Warp& warp, const Instr& in, F f) {
  D* d = warp.Destination<D>(in.d);
  if (warp.exec == kAllLanes) {
    // Through a buffer: a destination that is also a source would stop the vectoriser.
    D results[kLanes];
    for (uint32_t i = 0; i < kLanes; ++i) results[i] = f(i);
    std::memcpy(d, results, sizeof(results));
  } else {
    ForEach(warp.exec, [&](uint32_t i) { d[i] = f(i); });
  }
  return Step::kNext;
}

// d = F(a)
template <class D, class A, class F>
Handler Map1(F) {
  return [](Warp& warp, const Instr& in) {
    const A* a = warp.Source<A>(in.a);
    return Apply<D>(warp, in, [=](uint32_t i) { return static_cast<D>(F{}(a[i])); });
  };
}

// d = F(a, b)
template <class D, class A, class B, class F>
Handler Map2(F) {
  return [](Warp& warp, const Instr& in) {
    const A* a = warp.Source<A>(in.a);
    const B* b = warp.Source<B>(in.b);
    return Apply<D>(warp, in, [=](uint32_t i) { return static_cast<D>(F{}(a[i], b[i])); });
  };
}

// d = F(a, b, c)
template <class D, class A, class B, class C, class F>
Handler Map3(F) {
  return [](Warp& warp, const Instr& in) {
    const A* a = warp.Source<A>(in.a);
    const B* b = warp.Source<B>(in.b);
    const C* c = warp.Source<C>(in.c);
    return Apply<D>(warp, in, [=](uint32_t i) { return static_cast<D>(F{}(a[i], b[i], c[i])); });
  };
}

// d = F(a, b, c, e)
template <class D, class A, class B, class C, class E, class F>
Handler Map4(F) {
  return [](Warp& warp, const Instr& in) {
    const A* a = warp.Source<A>(in.a);
    const B* b = warp.Source<B>(in.b);
    const C* c = warp.Source<C>(in.c);
    const E* e = warp.Source<E>(in.e);
    return Apply<D>(warp, in,
                    [=](uint32_t i) { return static_cast<D>(F{}(a[i], b[i], c[i], e[i])); });
  };
}

}  // namespace gpuloom::softgpu
