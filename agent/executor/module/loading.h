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

#include <algorithm>
#include <charconv>
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
#include "proto/cuda/fatbin.h"
#include "proto/cuda/fatbin_unpack.h"
#include "proto/cuda/ptx_tokens.h"
#include "proto/cuda/return_if_error.h"

namespace gpuloom::executor {

inline double MillisecondsSince(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
      .count();
}

// Returns true if every length in the image is in bounds, so that it can be parsed.
inline bool IsWhole(std::span<const uint8_t> bytes) {
  Image image;
  if (FindImage(bytes.data(), bytes.size(), &image) != ImageError::kNone) return false;
  if (image.kind != ImageKind::kFatbin) return true;
  FatbinReader members(image.bytes, image.size_bytes);
  FatbinMember member;
  while (members.Next(&member)) {
  }
  return members.error() == ImageError::kNone;
}

inline std::span<const uint8_t> WithoutNul(const std::vector<uint8_t>& bytes) {
  return {bytes.data(), bytes.size() - 1};
}

// Returns true if the driver's linker can compile the PTX. Not for PTX that declares functions
// without defining them: the linker detects that once, stores the result in its cache on disk, and
// accepts the text from then on. And it only compiles what can be linked, introduced by ISA 3.1;
// the driver itself compiles older PTX, too.
inline bool IsLinkable(std::string_view text) {
  const auto number = [](std::string_view digits) {
    int value = 0;
    std::from_chars(digits.data(), digits.data() + digits.size(), value);
    return value;
  };
  PtxTokens tokens(text);
  if (tokens.Next() != ".version") return false;
  const int major = number(tokens.Next());
  std::string_view minor = tokens.Next();  // ".1"
  minor.remove_prefix(minor.empty() ? 0 : 1);
  if (major < 3 || (major == 3 && number(minor) < 1)) return false;
  return !PtxDeclaresFunctions(text);
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
  void Copy(const HostMemory& host, uint64_t address, uint64_t size_bytes) {
    if (!Afford(size_bytes + 1)) return;
    const auto begin = Clock::now();
    fresh = std::make_shared<KnownImage>();
    fresh->sent_bytes = size_bytes;
    fresh->bytes.resize(size_bytes + 1);
    if (!host.Read(address, fresh->bytes.data(), size_bytes)) fresh.reset();
    copy_ms = MillisecondsSince(begin);
  }

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
  CUresult LoadLibrary(const Driver& cuda, const KnownImage& from) {
    CUlibraryOption keeps[] = {CU_LIBRARY_BINARY_IS_PRESERVED};
    void* kept[] = {reinterpret_cast<void*>(1)};
    // Even a compiled image may be refused.
    const unsigned options = is_compiled ? JitOptions::kErrorOptions : jit.count();
    void** values = is_compiled ? jit.error_values() : jit.values();
    result = cuda.cuLibraryLoadData(&handle, from.bytes.data(), jit.options(), values, options,
                                    keeps, kept, 1);
    CountKernels(cuda);
    return result;
  }

  void CountKernels(const Driver& cuda) {
    unsigned count = 0;
    if (result != CUDA_SUCCESS) return;
    if (cuda.cuLibraryGetKernelCount != nullptr) {
      if (cuda.cuLibraryGetKernelCount(&count, handle) == CUDA_SUCCESS) kernel_count = count;
    } else if (image != nullptr && image->layouts != nullptr) {
      kernel_count = static_cast<uint32_t>(image->layouts->Names().size());
    }
  }

  // Compiles PTX to a cubin, in place, with the driver's linker: a lazily loaded library reports errors in its PTX only
  // when a kernel is requested, but cuModuleLoadData must report them at once. Also returns CUDA_SUCCESS for PTX that
  // Decide must check, for images that are not PTX, and where there is no linker.
  CUresult Compile(Device* device, const LibraryCache& cache) {
    const Driver& cuda = device->cuda();
    Image found;
    if (FindImage(fresh->bytes.data(), fresh->bytes.size() - 1, &found) != ImageError::kNone ||
        found.kind != ImageKind::kPtx || cuda.cuLinkCreate_v2 == nullptr) {
      return CUDA_SUCCESS;
    }
    is_text = true;
    if (!IsLinkable({reinterpret_cast<const char*>(found.bytes), found.size_bytes})) {
      return CUDA_SUCCESS;
    }
    if (!Afford(kCompilingTakes * fresh->bytes.size())) return result;
    CUlinkState link = nullptr;
    const Linker::Turn turn(&device->linker(), tenant, *left, Linker::kPatience);
    // If the session has ended, the result is dropped; otherwise the driver gets the PTX as it is.
    if (!turn.taken()) return *left ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
    CUDA_RETURN_IF_ERROR(cuda.cuLinkCreate_v2(jit.count(), jit.options(), jit.values(), &link));
    void* cubin = nullptr;
    size_t cubin_bytes = 0;
    CUresult linked = cuda.cuLinkAddData_v2(link, CU_JIT_INPUT_PTX, fresh->bytes.data(),
                                            fresh->bytes.size(), "ptx", 0, nullptr, nullptr);
    if (linked == CUDA_SUCCESS) linked = cuda.cuLinkComplete(link, &cubin, &cubin_bytes);
    if (linked == CUDA_SUCCESS) {
      if (!is_hashed) Hash(cache);
      fresh->SetBytes({static_cast<const uint8_t*>(cubin), cubin_bytes});
      is_compiled = true;
    }
    cuda.cuLinkDestroy(link);  // and with it `cubin`
    // The linker found no definition of something, which need not be an error: see Decide.
    const bool undecided = linked == CUDA_ERROR_UNKNOWN || linked == CUDA_ERROR_INVALID_SOURCE;
    return undecided ? CUDA_SUCCESS : linked;
  }

  // Looks up a kernel with an arbitrary name, so that the driver compiles the PTX. (It does this
  // without waiting for the device or blocking others; only the step from kernel to function does
  // either.)
  void Decide(const Driver& cuda) {
    CUkernel kernel = nullptr;
    const CUresult found = cuda.cuLibraryGetKernel(&kernel, handle, "-");
    if (found == CUDA_SUCCESS || found == CUDA_ERROR_NOT_FOUND) return;
    // The driver returns either for the same PTX; cuModuleLoadData returns the former.
    result = found == CUDA_ERROR_INVALID_SOURCE ? CUDA_ERROR_INVALID_PTX : found;
  }

  // Goes on with only the cubin that this device needs, where the driver's choice is clear. Most of a library's code is
  // for other devices, and would be unpacked and examined in vain.
  void TakeCubin(Device* device) {
    std::vector<uint8_t> cubin;
    const Device::Cubins cubins = device->cubins();
    if (cubins == Device::Cubins::kRefused ||
        !TakeOnlyCubin(WithoutNul(fresh->bytes), device->Capability(), &cubin)) {
      return;
    }
    // The next tenant will ask by the hash of what was sent. This one has its answer before that is computed.
    if (!is_hashed || cubins == Device::Cubins::kUnknown) sent = std::move(fresh->bytes);
    fresh->SetBytes(std::move(cubin));
    is_cubin = true;
  }

  // After Load. Returns true if the driver does not load cubins: then all that was sent is examined and loaded instead.
  // Another load may have found that out since this one took its cubin.
  bool GoBackToFatbin(Device* device) {
    if (!is_cubin) {
      // Only what loads now proves that the cubin's kind was the trouble, and not the image.
      if (went_back && handle != nullptr) device->set_cubins(Device::Cubins::kRefused);
      return false;
    }
    is_cubin = false;
    if (handle != nullptr) device->set_cubins(Device::Cubins::kTaken);
    if (result == CUDA_ERROR_NO_BINARY_FOR_GPU && device->cubins() != Device::Cubins::kTaken) {
      went_back = true;
      fresh = std::make_shared<KnownImage>();
      fresh->sent_bytes = sent.size() - 1;
      fresh->bytes = std::move(sent);
      cost->host.ShrinkTo(fresh->bytes.size());
      cost->device.reset();
      image.reset();
      result = CUDA_ERROR_INVALID_IMAGE;
      return true;
    }
    if (is_hashed) DropSent();
    return false;
  }

  // Examines the image, compiles PTX to a cubin, and determines the device memory needed. If the driver has to be asked
  // for managed variables in a quiet moment, ReadManaged and FinishLook are to follow. `whole`: the driver gets all that
  // was sent, as options are for it to follow.
  void Look(Device* device, const LibraryCache& cache, bool whole) {
    if (!IsWhole(WithoutNul(fresh->bytes))) {
      jit.SetError("gpuloom: the image is cut short or is no fatbin, cubin or PTX");
      return;
    }
    const uint64_t member_bytes = LargestMemberBytes(WithoutNul(fresh->bytes));
    // Members are unpacked one at a time, and the driver has its own copy.
    if (!Afford(2 * member_bytes)) return;
    const auto begin = Clock::now();
    if (!whole) TakeCubin(device);
    const ImageContent content = InspectImage(WithoutNul(fresh->bytes));
    fresh->has_variables = content.variables;
    fresh->prints = content.prints;
    fresh->device_bytes = content.device_bytes;
    look_ms = MillisecondsSince(begin);
    is_damaged = !content.is_sound;
    if (is_damaged) {
      jit.SetError("gpuloom: the image is damaged: its code refers to what is not in it");
      return;
    }
    DeviceCode code;
    if (content.variables && ChooseFor(device, WithoutNul(fresh->bytes), went_back, &code)) {
      fresh->device_bytes = DeviceBytes(code);
      has_unplaced = HasManagedVariables(code);
      managed = ManagedImage::Find(device, &code, &jit, tenant, *left,
                                   [this](uint64_t bytes) { return Afford(bytes); });
      if (NeedsReading()) return;
    }
    code = {};
    FinishLook(device, cache);
  }

  bool NeedsReading() const { return managed != nullptr && managed->IsUnread(); }

  void ReadManaged(const Driver& cuda, CUlibrary text) {
    const auto afford = [this](uint64_t bytes) { return Afford(bytes); };
    if (!managed->ReadText(cuda, text, afford)) managed.reset();
  }

  void FinishLook(Device* device, const LibraryCache& cache) {
    if (result == CUDA_ERROR_OUT_OF_MEMORY) return;
    const uint64_t member_bytes = LargestMemberBytes(WithoutNul(fresh->bytes));
    if (managed != nullptr) {
      has_unplaced = false;
      result = CUDA_SUCCESS;
      fresh->device_bytes = managed->device_bytes();
      const uint64_t layout_bytes = ReadLayouts(device->cuda(), member_bytes);
      return Keep(3 * member_bytes + layout_bytes);
    }
    result = Compile(device, cache);
    // Both the loaded image and the one that was sent count.
    if (is_text) fresh->has_variables |= HasVariables(WithoutNul(fresh->bytes));
    if (is_compiled) {
      const ImageContent compiled = InspectImage(WithoutNul(fresh->bytes));
      fresh->device_bytes = std::max(fresh->device_bytes, compiled.device_bytes);
    }
    // For PTX that was not compiled, the driver's own error has precedence.
    if (!is_text || is_compiled) RefuseUnplaced();
    const uint64_t held_bytes = LargestMemberBytes(WithoutNul(fresh->bytes));
    const uint64_t layout_bytes = ReadLayouts(device->cuda(), held_bytes);
    Keep(held_bytes + layout_bytes);
  }

  // The driver would place its managed variables in this process, where the tenant has nothing.
  void RefuseUnplaced() {
    if (!has_unplaced || result != CUDA_SUCCESS) return;
    result = CUDA_ERROR_NOT_SUPPORTED;
    jit.SetError(
        "gpuloom: this image's managed variables could not be found in it, or are larger than 4 "
        "GiB "
        "together; compile it with nvcc, or allocate with cudaMallocManaged instead");
  }

  // Where the driver does not report the layout of parameters, the image does. Returns the memory that this takes: no
  // more than the code itself in any image that a compiler made, except for very small ones.
  uint64_t ReadLayouts(const Driver& cuda, uint64_t code_bytes) {
    constexpr uint64_t kLeastBytes = 4096;
    if (cuda.cuKernelGetParamInfo != nullptr || result != CUDA_SUCCESS) return 0;
    const uint64_t limit_bytes = std::max(code_bytes, kLeastBytes);
    if (!Afford(limit_bytes)) return 0;
    fresh->layouts = std::make_shared<const KernelLayouts>(
        KernelLayouts::Of(WithoutNul(fresh->bytes), limit_bytes));
    return fresh->layouts->bytes();
  }

  // Whether the driver takes cubins has to be known before the variables get an address: after that
  // nothing goes back to the fatbin.
  void TryManaged(Device* device) {
    if (!managed->is_cubin() || device->cubins() == Device::Cubins::kTaken) return;
    const CUresult outcome = managed->Try(device->cuda(), &tried);
    if (outcome == CUDA_SUCCESS) device->set_cubins(Device::Cubins::kTaken);
    if (outcome != CUDA_ERROR_NO_BINARY_FOR_GPU) return;
    result = outcome;
    managed.reset();
  }

  // For an image that has been examined and charged.
  void Load(Device* device) {
    if (result != CUDA_SUCCESS || *left) return;
    if (managed != nullptr) return TryManaged(device);
    const auto begin = Clock::now();
    LoadLibrary(device->cuda(), *image);
    if (result == CUDA_SUCCESS && is_text) Decide(device->cuda());
    RefuseUnplaced();
    CountKernels(device->cuda());
    load_ms = MillisecondsSince(begin);
  }

  // From this call on the load holds the bytes and `beside_bytes`.
  void Keep(uint64_t beside_bytes) {
    cost->host.ShrinkTo(fresh->bytes.size() + beside_bytes + sent.size());
    fresh->cost_bytes = cost->host.bytes() - sent.size();
    image = std::move(fresh);
  }

  // Loads the managed image, whose address is known now.
  void LoadAt(const Driver& cuda, const HostMemory& host, uint64_t place) {
    result = managed->Load(cuda, host, place, &handle);
    CountKernels(cuda);
  }

  void LoadKnown(Device* device) {
    const auto begin = Clock::now();
    LoadLibrary(device->cuda(), *image);
    load_ms = MillisecondsSince(begin);
  }

  // Handles the scheduler's answer. The tenant learns why there is no room.
  void Pay(CUresult charged, DeviceChargeRef charge) {
    cost->device = std::move(charge);
    if (charged == CUDA_SUCCESS) return;
    managed.reset();
    result = charged;
    jit.SetError("gpuloom: code and variables of this image take " +
                 std::to_string((image->device_bytes >> 20) + 1) +
                 " MiB of GPU memory, for which the quota has no room: free some, or raise the " +
                 "policy's memory or the pod's slots");
  }
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
