// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/module/managed_image.h"

#include "agent/executor/device/device.h"
#include "agent/executor/module/linker.h"
#include "proto/cuda/return_if_error.h"

namespace gpuloom::executor {
namespace {

// wire::LibraryLoad::Reply has 32 bits for the size.
constexpr uint64_t kMaxManagedBytes = (uint64_t{4} << 30) - 4096;
// An address for variables that nothing will use, aligned as any of them may demand.
constexpr uintptr_t kSomewhere = 4096;

// Compiles PTX to a cubin; leaves it as PTX if the driver's linker makes no cubins. Returns false
// if the driver is to report what is wrong with it.
bool Assemble(Device* device, JitOptions* jit, const void* tenant, const std::atomic<bool>& left,
              DeviceCode* code) {
  const Driver& cuda = device->cuda();
  if (cuda.cuLinkCreate_v2 == nullptr) return true;
  CUlinkState link = nullptr;
  const Linker::Turn turn(&device->linker(), tenant, left, Linker::kPatience);
  // Not in time: the driver compiles the text itself when it is loaded.
  if (!turn.taken()) return !left;
  if (cuda.cuLinkCreate_v2(jit->count(), jit->options(), jit->values(), &link) != CUDA_SUCCESS) {
    return false;
  }
  void* made = nullptr;
  size_t made_bytes = 0;
  Image image;
  const bool assembled =
      cuda.cuLinkAddData_v2(link, CU_JIT_INPUT_PTX, code->bytes.data(), code->bytes.size(), "ptx",
                            0, nullptr, nullptr) == CUDA_SUCCESS &&
      cuda.cuLinkComplete(link, &made, &made_bytes) == CUDA_SUCCESS;
  if (assembled && FindImage(made, made_bytes, &image) == ImageError::kNone &&
      image.kind == ImageKind::kElf) {
    code->kind = ImageKind::kElf;
    code->bytes.assign(image.bytes, image.bytes + image.size_bytes);
  }
  cuda.cuLinkDestroy(link);
  return assembled;
}

// Loads code whose undefined variables of these names are at these places.
CUresult LoadLinked(const Driver& cuda, const DeviceCode& code, std::vector<const char*>* names,
                    std::vector<void*>* places, CUlibrary* library) {
  CUjit_option options[] = {CU_JIT_GLOBAL_SYMBOL_NAMES, CU_JIT_GLOBAL_SYMBOL_ADDRESSES,
                            CU_JIT_GLOBAL_SYMBOL_COUNT};
  void* values[] = {names->data(), places->data(), reinterpret_cast<void*>(names->size())};
  return cuda.cuLibraryLoadData(library, code.bytes.data(), options, values, 3, nullptr, nullptr,
                                0);
}

}  // namespace

bool ChooseFor(Device* device, std::span<const uint8_t> image, bool only_text, DeviceCode* code) {
  return ChooseCode(image, device->Capability(), code,
                    only_text || device->cubins() == Device::Cubins::kRefused);
}

// From a cubin the variables are read, and released in its symbol table; of PTX that stays text the
// driver has to say what they are: ReadText.
std::unique_ptr<ManagedImage> ManagedImage::Find(Device* device, DeviceCode* code, JitOptions* jit,
                                                 const void* tenant, const std::atomic<bool>& left,
                                                 const Afford& afford) {
  const Driver& cuda = device->cuda();
  if (!HasManagedVariables(*code)) return nullptr;
  auto found = std::make_unique<ManagedImage>();
  found->code_ = std::move(*code);
  // Names and initial values of its variables are no larger than the code.
  const bool is_text = found->code_.kind == ImageKind::kPtx;
  if (!afford((is_text ? kCompilingTakes : 1) * found->code_.bytes.size())) return nullptr;
  if (is_text && !Assemble(device, jit, tenant, left, &found->code_)) {
    return nullptr;
  }
  if (found->code_.kind == ImageKind::kPtx) {
    return found->LoadText(cuda) ? std::move(found) : nullptr;
  }
  if (!ListManagedVariables(found->code_.bytes, &found->variables_)) return nullptr;
  ReleaseManagedVariables(std::span<uint8_t>(found->code_.bytes));
  return !found->variables_.empty() && found->LayOut() ? std::move(found) : nullptr;
}

// For PTX, only the driver knows sizes and initial values: it loads the text once as it is.
bool ManagedImage::LoadText(const Driver& cuda) {
  std::string released;
  const std::string_view text(reinterpret_cast<const char*>(code_.bytes.data()),
                              code_.bytes.size() - 1);
  if (!gpuloom::ReleaseManagedVariables(text, &text_names_, &released) ||
      cuda.cuLibraryLoadData(&text_, code_.bytes.data(), nullptr, nullptr, 0, nullptr, nullptr,
                             0) != CUDA_SUCCESS) {
    return false;
  }
  code_.bytes.assign(released.c_str(), released.c_str() + released.size() + 1);
  return true;
}

bool ManagedImage::ReadText(const Driver& cuda, CUlibrary library, const Afford& afford) {
  bool found = true;
  for (const std::string& name : text_names_) {
    CUdeviceptr address = 0;
    size_t size_bytes = 0;
    found = found &&
            cuda.cuLibraryGetManaged(&address, &size_bytes, library, name.c_str()) == CUDA_SUCCESS;
    // Before the copy: the size is what the text declares.
    if (!found || !afford(size_bytes)) break;
    ManagedVariable variable;
    variable.name = name;
    variable.size_bytes = size_bytes;
    // The driver does not say how a variable is aligned.
    variable.align_bytes = 256;
    variable.initial.resize(size_bytes);
    found = cuda.cuMemcpyDtoH_v2(variable.initial.data(), address, size_bytes) == CUDA_SUCCESS;
    variables_.push_back(std::move(variable));
  }
  return found && !variables_.empty() && variables_.size() == text_names_.size() && LayOut();
}

// Lays the variables out one behind the other, each aligned as it demands, in what the tenant will
// provide as one piece.
bool ManagedImage::LayOut() {
  for (const ManagedVariable& variable : variables_) {
    const uint64_t align = variable.align_bytes;
    offsets_.push_back((size_bytes_ + align - 1) / align * align);
    if (variable.size_bytes > kMaxManagedBytes) return false;
    size_bytes_ = offsets_.back() + variable.size_bytes;
    if (size_bytes_ > kMaxManagedBytes) return false;
  }
  return size_bytes_ != 0;
}

// The options for undefined symbols, which the released variables have become, tell the driver
// where each variable lies.
CUresult ManagedImage::Load(const Driver& cuda, const HostMemory& host, uint64_t address,
                            uint64_t values, CUlibrary* library) {
  for (size_t i = 0; i < variables_.size(); ++i) {
    const ManagedVariable& variable = variables_[i];
    if (!variable.initial.empty() &&
        !host.Write(values + offsets_[i], variable.initial.data(), variable.initial.size())) {
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    names_.push_back(variable.name.c_str());
    places_.push_back(reinterpret_cast<void*>(address + offsets_[i]));
  }
  return LoadLinked(cuda, code_, &names_, &places_, library);
}

// The variables are undefined, so the driver takes no memory for them. Any address serves: kernels
// are relocated when they are first requested.
CUresult ManagedImage::Try(const Driver& cuda, CUlibrary* library) const {
  std::vector<const char*> names;
  for (const ManagedVariable& variable : variables_) names.push_back(variable.name.c_str());
  std::vector<void*> places(names.size(), reinterpret_cast<void*>(kSomewhere));
  return LoadLinked(cuda, code_, &names, &places, library);
}

std::vector<ManagedImage::Services> ManagedImage::VariablesAt(uint64_t address) const {
  std::vector<Services> places;
  for (size_t i = 0; i < variables_.size(); ++i) {
    places.push_back({variables_[i].name, address + offsets_[i], variables_[i].size_bytes});
  }
  return places;
}

}  // namespace gpuloom::executor
