// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/record_forms.h"

#include <cstring>

#include "agent/executor/testing/graph.h"

namespace gpuloom::executor {
namespace {

// What kernel wide takes: as much as a launch may carry, in words.
constexpr size_t kLongestParams = wire::kMaxKernelParamBytes / 8 * 8;

}  // namespace

RecordForms::RecordForms(Meter* meter) : meter_(meter), params_(12), longest_(kLongestParams) {
  TestingGraph graph;
  for (uint32_t i = 0; i < kGraphNodes; ++i) graph.AddKernel(1, params_);
  for (uint32_t i = 1; i < kGraphNodes; ++i) graph.AddEdge(i - 1, i);
  large_graph_ = graph.Block();
  FillCode();
  FillLinks();
  FillWork();
  FillGraphs();
  FillMemory();
  FillSharing();
  FillArrays();
  FillGreen();
}

void RecordForms::Send(std::string_view command) {
  const Form& form = forms_.at(command);
  if (form.prepare) {
    form.prepare();
    meter_->Settle();
  }
  meter_->Begin();
  form.send();
}

void RecordForms::SetUp() {
  SetUpMemory();
  meter_->Settle();
  SetUpCode();
  meter_->Settle();
  SetUpWork();
  meter_->Settle();
  SetUpArrays();
  meter_->Settle();
}

wire::HostPtr RecordForms::StageBytes(std::span<const uint8_t> bytes) const {
  std::memcpy(reinterpret_cast<void*>(Host(0)), bytes.data(), bytes.size());
  return wire::HostPtr{Host(0)};
}

wire::HostPtr RecordForms::StageText(std::string_view text) const {
  return StageBytes({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
}

}  // namespace gpuloom::executor
