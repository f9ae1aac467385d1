// SPDX-License-Identifier: Apache-2.0
// Makes handlers out of functions of single values: a loop over all lanes that the compiler
// vectorises, in which lanes that do not execute keep their values. A handler runs on the thread of
// its warp.
#pragma once

#include "agent/softgpu/exec/machine/lane_loops.h"
#include "agent/softgpu/exec/machine/vector_level.h"
#include "agent/softgpu/exec/machine/warp.h"

namespace gpuloom::softgpu {

// d = f(lane). Also computes f for lanes that do not execute: f has no side effects, and is cheap.
template <class D, class F>
[[gnu::always_inline]] inline Step Apply(Warp& warp, const Instr& in, F f) {
  D* const d = warp.Destination<D>(in.d);
  const uint32_t exec = warp.exec;
  if (exec == kAllLanes) {
    ForAll([&](uint32_t i) { d[i] = f(i); });
  } else {
    ForAll([&](uint32_t i) {
      const D result = f(i);
      d[i] = IsOn(exec, i) ? result : d[i];
    });
  }
  return Step::kNext;
}

// The same for an expensive f: only in executing lanes, one after the other.
template <class D, class F>
inline Step ApplyEach(Warp& warp, const Instr& in, F f) {
  D* const d = warp.Destination<D>(in.d);
  ForEach(warp.exec, [&](uint32_t i) { d[i] = f(i); });
  return Step::kNext;
}

template <class D, class A, class F>
Step Map1Body(Warp& warp, const Instr& in) {
  const A* a = warp.Source<A>(in.a);
  return Apply<D>(warp, in, [=](uint32_t i) { return static_cast<D>(F{}(a[i])); });
}

template <class D, class A, class B, class F>
Step Map2Body(Warp& warp, const Instr& in) {
  const A* a = warp.Source<A>(in.a);
  const B* b = warp.Source<B>(in.b);
  return Apply<D>(warp, in, [=](uint32_t i) { return static_cast<D>(F{}(a[i], b[i])); });
}

template <class D, class A, class B, class C, class F>
Step Map3Body(Warp& warp, const Instr& in) {
  const A* a = warp.Source<A>(in.a);
  const B* b = warp.Source<B>(in.b);
  const C* c = warp.Source<C>(in.c);
  return Apply<D>(warp, in, [=](uint32_t i) { return static_cast<D>(F{}(a[i], b[i], c[i])); });
}

template <class D, class A, class B, class C, class E, class F>
Step Map4Body(Warp& warp, const Instr& in) {
  const A* a = warp.Source<A>(in.a);
  const B* b = warp.Source<B>(in.b);
  const C* c = warp.Source<C>(in.c);
  const E* e = warp.Source<E>(in.e);
  return Apply<D>(warp, in,
                  [=](uint32_t i) { return static_cast<D>(F{}(a[i], b[i], c[i], e[i])); });
}

// d = F(a), F(a, b), F(a, b, c), F(a, b, c, e)
template <class D, class A, class F>
Handler Map1(F) {
  return ForVectors<Map1Body<D, A, F>>();
}
template <class D, class A, class B, class F>
Handler Map2(F) {
  return ForVectors<Map2Body<D, A, B, F>>();
}
template <class D, class A, class B, class C, class F>
Handler Map3(F) {
  return ForVectors<Map3Body<D, A, B, C, F>>();
}
template <class D, class A, class B, class C, class E, class F>
Handler Map4(F) {
  return ForVectors<Map4Body<D, A, B, C, E, F>>();
}

}  // namespace gpuloom::softgpu
