// SPDX-License-Identifier: Apache-2.0
#include "agent/scheduler/time_usage.h"

#include <algorithm>
#include <array>
#include <bit>

namespace gpuloom::scheduler {
namespace {

// All fields are 64-bit numbers, so that one loop serves both structures, and a new field needs no
// change here.
template <typename T>
using Figures = std::array<uint64_t, sizeof(T) / sizeof(uint64_t)>;

template <typename T>
void RaiseFigures(const T& reported_untrusted, T* known) {
  const auto reported = std::bit_cast<Figures<T>>(reported_untrusted);
  auto figures = std::bit_cast<Figures<T>>(*known);
  for (size_t i = 0; i < figures.size(); ++i) figures[i] = std::max(figures[i], reported[i]);
  *known = std::bit_cast<T>(figures);
}

template <typename T>
void AddFigures(const T& added, T* sum) {
  const auto more = std::bit_cast<Figures<T>>(added);
  auto figures = std::bit_cast<Figures<T>>(*sum);
  for (size_t i = 0; i < figures.size(); ++i) AddTo(more[i], &figures[i]);
  *sum = std::bit_cast<T>(figures);
}

}  // namespace

void AddTo(uint64_t figure, uint64_t* sum) { *sum += std::min(figure, UINT64_MAX - *sum); }

void RaiseTo(const control::TimeUsage& reported_untrusted, control::TimeUsage* known) {
  RaiseFigures(reported_untrusted, known);
}
void AddTo(const control::TimeUsage& usage, control::TimeUsage* sum) { AddFigures(usage, sum); }

void RaiseTo(const control::WorkCounts& reported_untrusted, control::WorkCounts* known) {
  RaiseFigures(reported_untrusted, known);
}
void AddTo(const control::WorkCounts& counts, control::WorkCounts* sum) { AddFigures(counts, sum); }

}  // namespace gpuloom::scheduler
