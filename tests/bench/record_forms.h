// SPDX-License-Identifier: Apache-2.0
// What a tenant may have made, and to it the costliest record of each command that is valid. One thread's.
//
//   forms.SetUp(); for each name: forms.Send(name); meter.Settle();
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tests/bench/meter.h"

namespace gpuloom::executor {

class RecordForms {
 public:
  static constexpr uint32_t kStreams = 4000;
  static constexpr uint32_t kEvents = 50'000;
  static constexpr uint32_t kKernels = 50'000;
  static constexpr uint32_t kSlices = 8000;    // of device memory, every other one free
  static constexpr uint32_t kPages = 4096;     // pinned, side by side
  static constexpr uint32_t kMappings = 1000;  // of physical memory, side by side
  static constexpr uint32_t kGraphNodes = 20'000;

  explicit RecordForms(Meter* meter);

  bool Has(std::string_view command) const { return forms_.contains(command); }
  // The record, with what must lie right before it.
  void Send(std::string_view command);
  // Made is then less than the other forms count on.
  bool TakesAway(std::string_view command) const { return forms_.at(command).takes_away; }

  void SetUp();

 private:
  struct Form {
    std::function<void()> send;
    std::function<void()> prepare;  // not counted; may be empty
    bool takes_away = false;
  };
  template <wire::Command C>
  Form& On(std::function<void()> send, std::function<void()> prepare = {}) {
    Form& form = forms_[C::kName];
    form.send = std::move(send);
    form.prepare = std::move(prepare);
    return form;
  }
  template <wire::Command C>
  void Post(const typename C::Request& request, std::span<const uint8_t> payload = {}) {
    meter_->Post<C>(request, payload);
  }
  // To whatever answer.
  template <wire::Command C>
  void PostAny(const typename C::Request& request, std::span<const uint8_t> payload = {}) {
    meter_->Expect(std::nullopt);
    meter_->Post<C>(request, payload);
    meter_->Expect(CUDA_SUCCESS);
  }

  void FillCode();     // record_forms_code.cc
  void FillLinks();    // the same
  void FillWork();     // record_forms_work.cc
  void FillGraphs();   // the same
  void FillMemory();   // record_forms_memory.cc
  void FillSharing();  // the same
  void FillArrays();   // record_forms_arrays.cc
  void FillGreen();    // the same
  void SetUpCode();
  void SetUpWork();
  void SetUpMemory();
  void SetUpArrays();

  // In the arena.
  static constexpr uint64_t kImageBytes = 48u << 20;
  static constexpr uint64_t kTexts = 56u << 20;
  static constexpr uint64_t kPinned = 64u << 20;
  static constexpr uint64_t kManaged = 128u << 20;  // pinned, too
  uint64_t Host(uint64_t offset) const { return meter_->order().host_range_begin + offset; }
  uint64_t Page(uint32_t page) const { return Host(kPinned + page * wire::kPageBytes); }
  uint64_t Slice(uint32_t slice) const { return meter_->order().device_range_begin + slice * 1024; }
  uint64_t Mapping(uint32_t mapping) const { return space_ + (uint64_t{mapping} << 21); }
  // Copies it to where images lie.
  wire::HostPtr StageBytes(std::span<const uint8_t> bytes) const;
  wire::HostPtr StageText(std::string_view text) const;
  static std::vector<uint8_t> Bytes(std::string_view text) { return {text.begin(), text.end()}; }

  Meter* const meter_;
  std::map<std::string_view, Form> forms_;
  const std::vector<uint8_t> params_;   // of kernel k
  const std::vector<uint8_t> longest_;  // of kernel wide
  std::vector<uint8_t> large_graph_;
  std::string many_kernels_;
  uint64_t large_ = 0, other_ = 0;  // allocations of their own
  uint64_t space_ = 0;              // for mappings
  uint64_t managed_space_ = 0;      // for mappings of managed memory
  uint64_t texture_ = 0, surface_ = 0;
  uint64_t put_ = 0;  // the number of what lies under the pool
  wire::Token event_{}, physical_{}, pool_{};
  std::vector<uint8_t> tensor_map_;
};

}  // namespace gpuloom::executor
