// SPDX-License-Identifier: Apache-2.0
// Kernels: looked up and loaded by a worker before the tenant may launch them, because a launch
// that loads code waits for the whole device, and all that is launched behind it waits, too.
#include <algorithm>

#include "agent/executor/device/context_memory.h"
#include "agent/executor/device/device.h"
#include "agent/executor/device/device_charge.h"
#include "agent/executor/device/partitions.h"
#include "agent/executor/device/quiet.h"
#include "agent/executor/launch/chain.h"
#include "agent/executor/launch/chunk.h"
#include "agent/executor/launch/launch_attributes.h"
#include "agent/executor/module/kernels.h"
#include "agent/executor/process/log.h"
#include "agent/executor/stream/stream_set.h"
#include "agent/node/one_line.h"
#include "proto/cuda/return_if_error.h"

namespace gpuloom::executor {
namespace {

// A library of at most so many kernels and bytes is loaded whole with the first kernel: each takes 10 to 20 µs then
// (H200), and another quiet moment later. Of a larger one those that earlier programs have asked for.
constexpr uint32_t kMostLoadedAtOnce = 64;
constexpr size_t kMostBytesLoadedAtOnce = 8u << 20;

constexpr uint32_t kParamsOfAnAnswer = wire::kReplyPayloadBytes / sizeof(wire::KernelParam);

// The parameters from number `first` on, as many as fit into an answer. The shim asks for the rest
// (KernelParams).
std::span<const uint8_t> ParamsFrom(const std::vector<wire::KernelParam>& params, size_t first) {
  const size_t count = std::min<size_t>(params.size() - first, kParamsOfAnAnswer);
  return {reinterpret_cast<const uint8_t*>(params.data() + first),
          count * sizeof(wire::KernelParam)};
}

// Limits that are only raised, and attributes that do not change results.
bool MayBeSetForAll(int32_t attribute) {
  return attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES ||
         attribute == CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED ||
         attribute == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT ||
         attribute == CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE;
}

// kNoAttribute counts as nothing allowed: such launches go to CUDA by themselves.
uint32_t Limit(int32_t attribute) { return attribute < 0 ? 0 : static_cast<uint32_t>(attribute); }

}  // namespace

// A look-up, or a change of an attribute, in progress. Its functions run on a worker.
struct Kernels::KernelLookup {
  std::string name;
  CUlibrary library = nullptr;
  ImageRef image;
  CUdevice device = 0;
  CUresult result = CUDA_SUCCESS;
  bool lacks_params = false;       // neither driver nor image says how its parameters lie
  bool loaded_all = false;         // all of the library's kernels
  std::vector<std::string> along;  // kernels to be loaded with this one; then those that were
  KernelFacts facts;

  // Reads all of them, so that the shim can answer by itself. Those that this driver does not know
  // are marked.
  void ReadAttributes(const Driver& cuda, int32_t* attributes) const {
    for (uint32_t i = 0; i < wire::kFunctionAttributes; ++i) {
      int value = 0;
      attributes[i] = cuda.cuKernelGetAttribute(&value, static_cast<CUfunction_attribute>(i),
                                                facts.kernel, device) == CUDA_SUCCESS
                          ? value
                          : wire::kNoAttribute;
    }
  }

  // Compiles if necessary; neither waits for other work nor holds it up (measured).
  void FindKernel(const Driver& cuda) {
    result = cuda.cuLibraryGetKernel(&facts.kernel, library, name.c_str());
  }

  // Loads the code onto the device. Whatever came to the device while it does so would wait until all has ended that
  // runs now (measured).
  static CUresult LoadCode(const Driver& cuda, CUkernel kernel, CUfunction* function) {
    CUDA_RETURN_IF_ERROR(cuda.cuKernelGetFunction(function, kernel));
    return cuda.cuFuncLoad == nullptr ? CUDA_SUCCESS : cuda.cuFuncLoad(*function);
  }

  // A kernel that cannot be loaded is the business of who asks for it.
  void LoadOthers(const Driver& cuda, uint32_t count) {
    std::erase_if(along, [&](const std::string& other) {
      CUkernel kernel = nullptr;
      CUfunction function = nullptr;
      return cuda.cuLibraryGetKernel(&kernel, library, other.c_str()) != CUDA_SUCCESS ||
             LoadCode(cuda, kernel, &function) != CUDA_SUCCESS;
    });
    if (count > kMostLoadedAtOnce || image == nullptr ||
        image->bytes.size() > kMostBytesLoadedAtOnce || cuda.cuLibraryEnumerateKernels == nullptr) {
      return;
    }
    std::vector<CUkernel> kernels(count);
    if (cuda.cuLibraryEnumerateKernels(kernels.data(), count, library) != CUDA_SUCCESS) return;
    loaded_all = std::all_of(kernels.begin(), kernels.end(), [&cuda](CUkernel kernel) {
      CUfunction function = nullptr;
      return LoadCode(cuda, kernel, &function) == CUDA_SUCCESS;
    });
  }

  CUresult Find(const Driver& cuda) {
    CUDA_RETURN_IF_ERROR(result);
    CUDA_RETURN_IF_ERROR(LoadCode(cuda, facts.kernel, &facts.function));
    CUDA_RETURN_IF_ERROR(FindParams(cuda));
    wire::KernelGet::Reply& reply = facts.reply;
    for (const wire::KernelParam& param : facts.params) {
      // The size of the packed buffer, which each launch must have exactly.
      reply.param_bytes = std::max(reply.param_bytes, param.offset_bytes + param.size_bytes);
    }
    reply.param_count = static_cast<uint32_t>(facts.params.size());
    reply.system_atomics = image != nullptr && image->system_atomics.MayBeIn(name) ? 1 : 0;
    ReadAttributes(cuda, reply.attributes);
    return CUDA_SUCCESS;
  }

  CUresult FindParams(const Driver& cuda) {
    if (cuda.cuKernelGetParamInfo == nullptr) return FindParamsInImage();
    for (size_t offset = 0, size = 0; cuda.cuKernelGetParamInfo(facts.kernel, facts.params.size(),
                                                                &offset, &size) == CUDA_SUCCESS;) {
      if (facts.params.size() == wire::kMaxKernelParamBytes) return CUDA_ERROR_NOT_SUPPORTED;
      facts.params.push_back({static_cast<uint32_t>(offset), static_cast<uint32_t>(size)});
    }
    return CUDA_SUCCESS;
  }

  // Drivers before CUDA 12.4 do not report it; for code that the driver linked itself none does.
  CUresult FindParamsInImage() {
    const auto* params =
        image != nullptr && image->layouts != nullptr ? image->layouts->Find(name) : nullptr;
    if (params == nullptr || params->size() > wire::kMaxKernelParamBytes) {
      lacks_params = true;
      return CUDA_ERROR_NOT_SUPPORTED;
    }
    for (const ParamLayout& param : *params) {
      facts.params.push_back({param.offset_bytes, param.size_bytes});
    }
    return CUDA_SUCCESS;
  }
};

void Kernels::SetCollects(Kernel* kernel, const int32_t* attributes) const {
  kernel->max_threads = Limit(attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK]);
  kernel->max_dynamic_shared_bytes =
      Limit(attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES]);
  // Nodes of a chain can have no clusters and no references, and kernels that print take turns.
  kernel->collects = services_.chains != nullptr && !kernel->library->prints &&
                     kernel->library->references == nullptr &&
                     kernel->param_bytes <= kMaxChunkedParamBytes &&
                     Limit(attributes[CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET]) == 0 &&
                     Limit(attributes[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH]) == 0 &&
                     !services_.chains->Refuses(kernel->kernel);
  kernel->refused_known = services_.chains == nullptr ? 0 : services_.chains->refused();
}

// Two steps: the driver's look-up by name, which may compile, on a worker at once; then the step
// from kernel to function, which loads code, in a quiet moment, unless it is loaded already.
void Kernels::On(wire::Tag<wire::KernelGet>, const wire::KernelGet::Request& request,
                 const wire::Record& record) {
  const Library* library = libraries_->FindLibrary(request.library);
  if (library == nullptr) return;
  if (kernels_.Add(request.kernel) == nullptr) return Refuse(wire::Fatal::kBadHandle);
  const Caller caller = CallerOf(record);
  const std::string name(record.payload.begin(), record.payload.end());
  if (const auto known = library->loaded->kernels.find(name);
      known != library->loaded->kernels.end()) {
    return AnswerKernel(caller, request, library->loaded, known->second);
  }
  auto lookup = std::make_shared<KernelLookup>();
  lookup->name = name;
  lookup->library = library->loaded->handle;
  lookup->image = library->loaded->image;
  lookup->device = services_.device->device();
  const bool is_loaded = library->loaded->complete || library->loaded->loaded_along.contains(name);
  modules_.Post(
      [lookup, is_loaded, &cuda = services_.device->cuda()] {
        lookup->FindKernel(cuda);
        if (is_loaded) lookup->result = lookup->Find(cuda);
      },
      [this, lookup, caller, request, is_loaded, loaded = library->loaded] {
        if (is_loaded || lookup->result != CUDA_SUCCESS) {
          return FinishLookup(caller, request, lookup, loaded);
        }
        if (loaded->kernels.empty() && loaded->image != nullptr) {
          const auto& names = loaded->image->asked_for.names();
          lookup->along.assign(names.begin(), names.end());
        }
        // A quiet moment for a session that has ended would hold the others up in vain.
        if (!serving()) return;
        libraries_->LoadCode(
            loaded,
            [lookup, count = loaded->kernel_count, &cuda = services_.device->cuda()] {
              lookup->result = lookup->Find(cuda);
              if (lookup->result == CUDA_SUCCESS) lookup->LoadOthers(cuda, count);
              return lookup->result == CUDA_SUCCESS;
            },
            [this, lookup, caller, request, loaded] {
              loaded->complete |= lookup->loaded_all;
              loaded->loaded_along.insert(lookup->along.begin(), lookup->along.end());
              FinishLookup(caller, request, lookup, loaded);
            });
      });
}

void Kernels::FinishLookup(Caller caller, const wire::KernelGet::Request& request,
                           const std::shared_ptr<KernelLookup>& lookup, const LibraryRef& loaded) {
  services_.device->JudgeImage(lookup->result);
  if (lookup->lacks_params) {
    LogFor(&tenant_->lines, LogLevel::kWarning,
           "session %llu (%s): kernel %s is refused: the image does not say how its parameters "
           "lie, and the driver says it only from CUDA 12.4 (driver 550) on",
           static_cast<unsigned long long>(id()), label(), OneLine(lookup->name, 200).c_str());
  }
  if (lookup->result == CUDA_SUCCESS) {
    if (loaded->image != nullptr) loaded->image->asked_for.Note(lookup->name);
    // Kept with the library even if this session has ended: another that shares it need not look
    // again. An entry that came first stays, as kernels point into it.
    const auto [known, added] = loaded->kernels.emplace(lookup->name, std::move(lookup->facts));
    if (!serving()) return;
    return AnswerKernel(caller, request, loaded, known->second);
  }
  RefuseKernel(caller, request, lookup->result);
}

// The id is free again: no answer has named it.
void Kernels::RefuseKernel(Caller caller, const wire::KernelGet::Request& request,
                           CUresult result) {
  kernels_.Take(request.kernel);
  Reply<wire::KernelGet>(caller, result);
}

void Kernels::AnswerKernel(Caller caller, const wire::KernelGet::Request& request,
                           const LibraryRef& loaded, const KernelFacts& facts) {
  // The program may have unloaded it from another thread meanwhile.
  Library* library = libraries_->FindLoaded(request.library, loaded);
  if (library == nullptr) return RefuseKernel(caller, request, CUDA_ERROR_INVALID_HANDLE);
  // The driver would allocate local memory at the first launch, and wait there for all that runs.
  const int32_t local_bytes = facts.reply.attributes[CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES];
  constexpr auto kKind = ContextMemory::Kind::kThread;
  const auto thread_bytes = static_cast<uint64_t>(std::max(local_bytes, 0));
  if (const uint64_t price = services_.context->PriceOf(kKind, thread_bytes); price != 0) {
    return Charge(price, [this, caller, request, loaded, &facts, thread_bytes](
                             CUresult charged, const DeviceChargeRef& charge) {
      if (!serving()) return;
      if (charged != CUDA_SUCCESS) return RefuseKernel(caller, request, charged);
      auto result = std::make_shared<CUresult>(CUDA_SUCCESS);
      ++outstanding_;
      services_.quiet->Need(
          owner(),
          [result, thread_bytes, &cuda = services_.device->cuda()] {
            *result = RaiseLimit(cuda, CU_LIMIT_STACK_SIZE, thread_bytes);
          },
          [this, result, caller, request, loaded, &facts, thread_bytes, charge] {
            --outstanding_;
            services_.device->Judge(*result);
            if (*result == CUDA_SUCCESS) services_.context->Raise(kKind, thread_bytes, charge);
            if (!serving()) return;
            if (*result != CUDA_SUCCESS) return RefuseKernel(caller, request, *result);
            // Once more from the top: the price is 0 now, but the library may have been unloaded
            // meanwhile.
            AnswerKernel(caller, request, loaded, facts);
          });
    });
  }
  library->kernels.push_back(request.kernel);
  // The entry that the request made: until it has a function, no command can remove it.
  Kernel* kernel = kernels_.Find(request.kernel);
  kernel->library = loaded;
  kernel->kernel = facts.kernel;
  kernel->function = facts.function;
  kernel->param_bytes = facts.reply.param_bytes;
  kernel->params = &facts.params;
  SetCollects(kernel, facts.reply.attributes);
  Reply<wire::KernelGet>(caller, CUDA_SUCCESS, facts.reply, ParamsFrom(facts.params, 0));
}

void Kernels::On(wire::Tag<wire::KernelParams>, const wire::KernelParams::Request& request,
                 const wire::Record& record) {
  const Kernel* kernel = FindKernel(request.kernel);
  if (kernel == nullptr) return;
  if (request.first >= kernel->params->size()) return Refuse(wire::Fatal::kBadArgument);
  Reply<wire::KernelParams>(CallerOf(record), CUDA_SUCCESS, {},
                            ParamsFrom(*kernel->params, request.first));
}

Kernel* Kernels::FindKernel(wire::KernelId id_untrusted) {
  Kernel* kernel = kernels_.Find(id_untrusted);
  if (kernel != nullptr && kernel->function != nullptr) return kernel;
  Refuse(wire::Fatal::kBadHandle);
  return nullptr;
}

// By our own tables: the driver of a lost context may not answer.
std::string Kernels::NameOf(CUkernel kernel) const {
  if (kernel == nullptr) return {};
  // Many ids may be the same kernel, and a library may have many: one look at each.
  const LoadedLibrary* library = nullptr;
  kernels_.ForEach([&](const Kernel& known) {
    if (known.kernel == kernel && library == nullptr) library = known.library.get();
  });
  if (library == nullptr) return {};
  for (const auto& [function, facts] : library->kernels) {
    if (facts.kernel == kernel) return function;
  }
  return {};
}

void Kernels::On(wire::Tag<wire::KernelSetAttribute>,
                 const wire::KernelSetAttribute::Request& request, const wire::Record& record) {
  const Kernel* kernel = FindKernel(request.kernel);
  if (kernel == nullptr) return;
  if (request.attribute < 0 ||
      static_cast<uint32_t>(request.attribute) >= wire::kFunctionAttributes) {
    return Refuse(wire::Fatal::kBadArgument);
  }
  // A shared kernel's attributes that would change other tenants' launches cannot be set. Shims
  // keep the cluster size themselves and send it with each launch.
  if (kernel->library->shared && !MayBeSetForAll(request.attribute)) {
    return Reply<wire::KernelSetAttribute>(CallerOf(record), CUDA_ERROR_INVALID_VALUE);
  }
  // Earlier launches run with the old attributes, as far as they can be submitted now.
  streams_.Flush(true);
  auto lookup = std::make_shared<KernelLookup>();
  lookup->facts.kernel = kernel->kernel;
  lookup->device = services_.device->device();
  // Once a session has allowed clusters of a size that other devices lack they stay allowed; to
  // take that back would make another's launches fail.
  const bool allows = request.attribute == CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED &&
                      request.value != 0;
  if (kernel->library->shared && !allows &&
      request.attribute == CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED) {
    wire::KernelSetAttribute::Reply reply{};
    return Reply<wire::KernelSetAttribute>(CallerOf(record), CUDA_SUCCESS, reply);
  }
  const bool limits_shared_memory =
      request.attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
  SharedMemoryLimits* const raised =
      kernel->library->shared && limits_shared_memory ? &kernel->library->shared_memory : nullptr;
  modules_.Post(
      [lookup, request, raised, &cuda = services_.device->cuda()] {
        const auto set = [&](int value) {
          return cuda.cuKernelSetAttribute(static_cast<CUfunction_attribute>(request.attribute),
                                           value, lookup->facts.kernel, lookup->device);
        };
        lookup->result = raised == nullptr
                             ? set(request.value)
                             : raised->Raise(lookup->facts.kernel, request.value, set);
        lookup->ReadAttributes(cuda, lookup->facts.reply.attributes);
      },
      [this, lookup, request, limits_shared_memory, library = kernel->library,
       caller = CallerOf(record)] {
        // Whatever the driver answered: the attribute may have changed.
        if (services_.chains != nullptr) services_.chains->Forget(lookup->facts.kernel);
        // The id may be another kernel's by now.
        if (Kernel* named = kernels_.Find(request.kernel); named != nullptr &&
                                                           named->library == library &&
                                                           named->kernel == lookup->facts.kernel) {
          SetCollects(named, lookup->facts.reply.attributes);
        }
        wire::KernelSetAttribute::Reply reply;
        std::copy(std::begin(lookup->facts.reply.attributes),
                  std::end(lookup->facts.reply.attributes), reply.attributes);
        // The session reads back what it has set, not the highest value of all that share the kernel.
        if (limits_shared_memory && lookup->result == CUDA_SUCCESS) {
          reply.attributes[request.attribute] = request.value;
        }
        Reply<wire::KernelSetAttribute>(caller, services_.device->Judge(lookup->result), reply);
      });
}

}  // namespace gpuloom::executor
