// SPDX-License-Identifier: Apache-2.0
// A library on its way from the tenant's image to the driver (docs/design/module-loading.md). For library_load.cc and
// managed_variables.cc alone.
//
// Shared by the jobs and callbacks of the load, and by its library while the tenant chooses an address for managed
// variables; ends with the last of them, on the ring thread. Owns the copy of the image, and `managed`. The device, cache
// and host memory that functions take outlive the load.
//
// Created, charged (Pay) and answered on the ring thread; all other functions run on one worker at a time. `left` may be
// read by any thread: once it is true, the session has ended, and the result is dropped.
//
// What fails is in `result`, which is the tenant's answer, with the reason in `jit`'s error text; later steps then do
// nothing. All memory that the load holds is taken from the session's budget before it is allocated (Afford): without
// room the result is CUDA_ERROR_OUT_OF_MEMORY.
//
//   loading->Copy(host, address, size); loading->Hash(cache);   // or `image` is known by its hash: LoadKnown
//   loading->Look(device, cache, whole);                        // if NeedsReading: ReadManaged, then FinishLook
//   loading->Pay(charged, charge);
//   loading->Load(device);                                      // if GoBackToFatbin: Look again
//   loading->LoadAt(cuda, host, place);                         // if `managed`: once the tenant has sent LibraryPlace
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "agent/executor/device/device.h"
#include "agent/executor/device/device_charge.h"
#include "agent/executor/memory/host_memory.h"
#include "agent/executor/module/jit_options.h"
#include "agent/executor/module/library_cache.h"
#include "agent/executor/module/library_loader.h"
#include "agent/executor/module/linker.h"
#include "agent/executor/module/managed_image.h"
#include "agent/executor/session/host_budget.h"

namespace gpuloom::executor {

inline double MillisecondsSince(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
      .count();
}

inline std::span<const uint8_t> WithoutNul(const std::vector<uint8_t>& bytes) {
  return {bytes.data(), bytes.size() - 1};
}

// One load in progress. Its functions run on a worker, which then has it exclusively.
struct Loading {
  using Clock = std::chrono::steady_clock;

  Loading(Caller who, wire::LibraryId library_id, LeftFlag session_left, const void* of_tenant,
          std::shared_ptr<SessionBudget> budget)
      : caller(who),
        id(library_id),
        left(std::move(session_left)),
        tenant(of_tenant),
        cost(std::make_shared<ImageCost>(std::move(budget))) {}

  const Caller caller;
  const wire::LibraryId id;
  const LeftFlag left;
  const void* const tenant;  // identity; never dereferenced
  // The charge for all that this load holds; higher while the image is examined and compiled.
  const std::shared_ptr<ImageCost> cost;
  bool by_hash = false;   // as the tenant requested
  bool is_known = false;  // `image` has been loaded before
  bool is_hashed = false;
  ImageHash hash{};
  std::shared_ptr<KnownImage> fresh;  // until it is known
  ImageRef image;
  bool is_damaged = false;    // its structure is invalid: the driver has not seen it
  bool has_unplaced = false;  // it has managed variables that could not be identified
  bool is_text = false;       // PTX, which the driver may not have fully checked yet
  bool is_compiled = false;   // from PTX, by us: the compiler's options do not apply any more
  bool is_cubin = false;      // taken out of the fatbin that the tenant sent
  bool went_back = false;     // to that fatbin, whose cubin the driver has refused
  // That fatbin, while the driver may yet refuse its cubin, or it is not hashed yet.
  std::vector<uint8_t> sent;
  CUresult result = CUDA_ERROR_INVALID_IMAGE;
  CUlibrary handle = nullptr;
  CUlibrary tried = nullptr;  // loaded only to see whether the driver takes it; to be unloaded
  uint32_t kernel_count = 0;
  LibraryRef library;                     // ring thread: holds `handle`
  std::unique_ptr<ManagedImage> managed;  // waiting for an address, or has one
  JitOptions jit;                         // the compiler's options and logs
  wire::JitReport report{};               // of LibraryCompile
  double copy_ms = 0;
  double look_ms = 0;
  double load_ms = 0;

  // Returns false if the session may not take that much more; the tenant gets the error.
  bool Afford(uint64_t bytes) {
    if (cost->host.Add(bytes)) return true;
    jit.SetError(cost->host.Refusal(bytes));
    result = CUDA_ERROR_OUT_OF_MEMORY;
    return false;
  }

  // The tenant may keep writing while we read: only the copy counts.
  void Copy(const HostMemory& host, uint64_t address, uint64_t size_bytes);

  // Hashes what the tenant sent.
  void Hash(const LibraryCache& cache) {
    hash = cache.Hash(WithoutNul(fresh->bytes));
    is_hashed = true;
  }

  // The same after the load, of what is left of what was sent.
  void HashLoaded(const LibraryCache& cache) {
    hash = cache.Hash(WithoutNul(sent.empty() ? image->bytes : sent));
    is_hashed = true;
  }

  void DropSent() {
    cost->host.ShrinkTo(cost->host.bytes() - sent.size());
    sent = {};
  }

  // The image's bytes live as long as the library, so the driver need not copy them.
  CUresult LoadLibrary(const Driver& cuda, const KnownImage& from);

  void CountKernels(const Driver& cuda);

  // Compiles PTX to a cubin, in place, with the driver's linker: a lazily loaded library reports errors in its PTX only
  // when a kernel is requested, but cuModuleLoadData must report them at once. Also returns CUDA_SUCCESS for PTX that
  // Decide must check, for images that are not PTX, and where there is no linker.
  CUresult Compile(Device* device, const LibraryCache& cache);

  // Looks up a kernel with an arbitrary name, so that the driver compiles the PTX. (It does this
  // without waiting for the device or blocking others; only the step from kernel to function does
  // either.)
  void Decide(const Driver& cuda);

  // Goes on with only the cubin that this device needs, where the driver's choice is clear. Most of a library's code is
  // for other devices, and would be unpacked and examined in vain.
  void TakeCubin(Device* device);

  // After Load. Returns true if the driver does not load cubins: then all that was sent is examined and loaded instead.
  // Another load may have found that out since this one took its cubin.
  bool GoBackToFatbin(Device* device);

  // Examines the image, compiles PTX to a cubin, and determines the device memory needed. If the driver has to be asked
  // for managed variables in a quiet moment, ReadManaged and FinishLook are to follow. `whole`: the driver gets all that
  // was sent, as options are for it to follow.
  void Look(Device* device, const LibraryCache& cache, bool whole);

  bool NeedsReading() const { return managed != nullptr && managed->IsUnread(); }

  void ReadManaged(const Driver& cuda, CUlibrary text) {
    const auto afford = [this](uint64_t bytes) { return Afford(bytes); };
    if (!managed->ReadText(cuda, text, afford)) managed.reset();
  }

  void FinishLook(Device* device, const LibraryCache& cache);

  // The driver would place its managed variables in this process, where the tenant has nothing.
  void RefuseUnplaced();

  // Where the driver does not report the layout of parameters, the image does. Returns the memory that this takes: no
  // more than the code itself in any image that a compiler made, except for very small ones.
  uint64_t ReadLayouts(const Driver& cuda, uint64_t code_bytes);

  // Whether the driver takes cubins has to be known before the variables get an address: after that
  // nothing goes back to the fatbin.
  void TryManaged(Device* device);

  // For an image that has been examined and charged.
  void Load(Device* device);

  // From this call on the load holds the bytes and `beside_bytes`.
  void Keep(uint64_t beside_bytes) {
    cost->host.ShrinkTo(fresh->bytes.size() + beside_bytes + sent.size());
    fresh->cost_bytes = cost->host.bytes() - sent.size();
    image = std::move(fresh);
  }

  // Loads the managed image, whose address is known now.
  void LoadAt(const Driver& cuda, const HostMemory& host, uint64_t place, uint64_t values) {
    result = managed->Load(cuda, host, place, values, &handle);
    CountKernels(cuda);
  }

  void LoadKnown(Device* device) {
    const auto begin = Clock::now();
    LoadLibrary(device->cuda(), *image);
    load_ms = MillisecondsSince(begin);
  }

  // Handles the scheduler's answer. The tenant learns why there is no room.
  void Pay(CUresult charged, DeviceChargeRef charge);
  uint64_t device_bytes() const {
    return result == CUDA_SUCCESS && image != nullptr ? image->device_bytes : 0;
  }
};

template <typename C>
void LibraryLoader::AnswerLoad(Caller caller, const Loading& loading,
                               const typename C::Reply& reply) {
  Settle(loading);
  const std::string_view log = loading.jit.error();
  Reply<C>(caller, loading.result, reply,
           {reinterpret_cast<const uint8_t*>(log.data()), log.size()});
}

}  // namespace gpuloom::executor
