// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/module/loading.h"

#include <algorithm>
#include <charconv>

#include "agent/executor/device/device.h"
#include "proto/cuda/fatbin.h"
#include "proto/cuda/fatbin_unpack.h"
#include "proto/cuda/ptx_tokens.h"
#include "proto/cuda/return_if_error.h"

namespace gpuloom::executor {
namespace {

// Returns true if every length in the image is in bounds, so that it can be parsed.
bool IsWhole(std::span<const uint8_t> bytes) {
  Image image;
  if (FindImage(bytes.data(), bytes.size(), &image) != ImageError::kNone) return false;
  if (image.kind != ImageKind::kFatbin) return true;
  FatbinReader members(image.bytes, image.size_bytes);
  FatbinMember member;
  while (members.Next(&member)) {
  }
  return members.error() == ImageError::kNone;
}

// Returns true if the driver's linker can compile the PTX. Not for PTX that declares functions
// without defining them: the linker detects that once, stores the result in its cache on disk, and
// accepts the text from then on. And it only compiles what can be linked, introduced by ISA 3.1;
// the driver itself compiles older PTX, too.
bool IsLinkable(std::string_view text) {
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

}  // namespace

void Loading::Copy(const HostMemory& host, uint64_t address, uint64_t size_bytes) {
  if (!Afford(size_bytes + 1)) return;
  const auto begin = Clock::now();
  fresh = std::make_shared<KnownImage>();
  fresh->sent_bytes = size_bytes;
  fresh->bytes.resize(size_bytes + 1);
  if (!host.Read(address, fresh->bytes.data(), size_bytes)) fresh.reset();
  copy_ms = MillisecondsSince(begin);
}

CUresult Loading::LoadLibrary(const Driver& cuda, const KnownImage& from) {
  CUlibraryOption keeps[] = {CU_LIBRARY_BINARY_IS_PRESERVED};
  void* kept[] = {reinterpret_cast<void*>(1)};
  // Even a compiled image may be refused.
  const unsigned options = is_compiled ? JitOptions::kErrorOptions : jit.count();
  void** values = is_compiled ? jit.error_values() : jit.values();
  result = cuda.cuLibraryLoadData(&handle, from.bytes.data(), jit.options(), values, options, keeps,
                                  kept, 1);
  CountKernels(cuda);
  return result;
}

void Loading::CountKernels(const Driver& cuda) {
  unsigned count = 0;
  if (result != CUDA_SUCCESS) return;
  if (cuda.cuLibraryGetKernelCount != nullptr) {
    if (cuda.cuLibraryGetKernelCount(&count, handle) == CUDA_SUCCESS) kernel_count = count;
  } else if (image != nullptr && image->layouts != nullptr) {
    kernel_count = static_cast<uint32_t>(image->layouts->Names().size());
  }
}

CUresult Loading::Compile(Device* device, const LibraryCache& cache) {
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

void Loading::Decide(const Driver& cuda) {
  CUkernel kernel = nullptr;
  const CUresult found = cuda.cuLibraryGetKernel(&kernel, handle, "-");
  if (found == CUDA_SUCCESS || found == CUDA_ERROR_NOT_FOUND) return;
  // The driver returns either for the same PTX; cuModuleLoadData returns the former.
  result = found == CUDA_ERROR_INVALID_SOURCE ? CUDA_ERROR_INVALID_PTX : found;
}

void Loading::TakeCubin(Device* device) {
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

bool Loading::GoBackToFatbin(Device* device) {
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

void Loading::Look(Device* device, const LibraryCache& cache, bool whole) {
  if (!IsWhole(WithoutNul(fresh->bytes))) {
    jit.SetError("gpuloom: the image is cut short or is no fatbin, cubin or PTX");
    return;
  }
  const uint64_t member_bytes = LargestMemberBytes(WithoutNul(fresh->bytes));
  // Members are unpacked one at a time, and the driver has its own copy.
  if (!Afford(2 * member_bytes)) return;
  const auto begin = Clock::now();
  if (!whole) TakeCubin(device);
  ImageContent content = InspectImage(WithoutNul(fresh->bytes));
  fresh->has_variables = content.variables;
  fresh->prints = content.prints;
  fresh->device_bytes = content.device_bytes;
  fresh->system_atomics = std::move(content.system_atomics);
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

void Loading::FinishLook(Device* device, const LibraryCache& cache) {
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

void Loading::RefuseUnplaced() {
  if (!has_unplaced || result != CUDA_SUCCESS) return;
  result = CUDA_ERROR_NOT_SUPPORTED;
  jit.SetError(
      "gpuloom: this image's managed variables could not be found in it, or are larger than 4 "
      "GiB "
      "together; compile it with nvcc, or allocate with cudaMallocManaged instead");
}

uint64_t Loading::ReadLayouts(const Driver& cuda, uint64_t code_bytes) {
  constexpr uint64_t kLeastBytes = 4096;
  if (cuda.cuKernelGetParamInfo != nullptr || result != CUDA_SUCCESS) return 0;
  const uint64_t limit_bytes = std::max(code_bytes, kLeastBytes);
  if (!Afford(limit_bytes)) return 0;
  fresh->layouts = std::make_shared<const KernelLayouts>(
      KernelLayouts::Of(WithoutNul(fresh->bytes), limit_bytes));
  return fresh->layouts->bytes();
}

void Loading::TryManaged(Device* device) {
  if (!managed->is_cubin() || device->cubins() == Device::Cubins::kTaken) return;
  const CUresult outcome = managed->Try(device->cuda(), &tried);
  if (outcome == CUDA_SUCCESS) device->set_cubins(Device::Cubins::kTaken);
  if (outcome != CUDA_ERROR_NO_BINARY_FOR_GPU) return;
  result = outcome;
  managed.reset();
}

void Loading::Load(Device* device) {
  if (result != CUDA_SUCCESS || *left) return;
  if (managed != nullptr) return TryManaged(device);
  const auto begin = Clock::now();
  LoadLibrary(device->cuda(), *image);
  if (result == CUDA_SUCCESS && is_text) Decide(device->cuda());
  RefuseUnplaced();
  CountKernels(device->cuda());
  load_ms = MillisecondsSince(begin);
}

void Loading::Pay(CUresult charged, DeviceChargeRef charge) {
  cost->device = std::move(charge);
  if (charged == CUDA_SUCCESS) return;
  managed.reset();
  result = charged;
  jit.SetError("gpuloom: code and variables of this image take " +
               std::to_string((image->device_bytes >> 20) + 1) +
               " MiB of GPU memory, for which the quota has no room: free some, or raise the " +
               "policy's memory or the pod's slots");
}

}  // namespace gpuloom::executor
