// Kernels: looked up and loaded by a worker before the tenant may launch them, because a launch
// that loads code waits for the whole device.
#include "agent/executor/session.h"

namespace gpuloom::executor {
namespace {

constexpr uint32_t kMaxParams = wire::kReplyPayloadBytes / sizeof(wire::KernelParam);

}  // namespace

struct Session::KernelLookup {
  std::string name;
  CUlibrary library = nullptr;
  CUdevice device = 0;
  CUresult result = CUDA_SUCCESS;
  CUkernel kernel = nullptr;
  CUfunction function = nullptr;
  wire::KernelGet::Reply reply{};
  std::vector<wire::KernelParam> params;

  void ReadAttributes(const Driver& cuda, int32_t* attributes) const {
    for (uint32_t i = 0; i < wire::kFunctionAttributes; ++i) {
      int value = 0;
      attributes[i] = cuda.cuKernelGetAttribute(&value, static_cast<CUfunction_attribute>(i),
                                                kernel, device) == CUDA_SUCCESS
                          ? value
                          : wire::kNoAttribute;
    }
  }

  CUresult Find(const Driver& cuda) {
    CUresult found = cuda.cuLibraryGetKernel(&kernel, library, name.c_str());
    if (found != CUDA_SUCCESS) return found;
    found = cuda.cuKernelGetFunction(&function, kernel);
    if (found != CUDA_SUCCESS) return found;
    if (cuda.cuFuncLoad != nullptr) found = cuda.cuFuncLoad(function);
    if (found != CUDA_SUCCESS) return found;
    for (size_t offset = 0, size = 0;
         cuda.cuKernelGetParamInfo(kernel, params.size(), &offset, &size) == CUDA_SUCCESS;) {
      if (params.size() == kMaxParams) return CUDA_ERROR_NOT_SUPPORTED;
      params.push_back({static_cast<uint32_t>(offset), static_cast<uint32_t>(size)});
      reply.param_bytes =
          std::max(reply.param_bytes, params.back().offset_bytes + params.back().size_bytes);
    }
    reply.param_count = static_cast<uint32_t>(params.size());
    ReadAttributes(cuda, reply.attributes);
    return CUDA_SUCCESS;
  }
};

void Session::On(wire::Tag<wire::KernelGet>, const wire::KernelGet::Request& request,
                 const wire::Record& record) {
  const Library* library = libraries_.Find(request.library);
  if (library == nullptr || library->cuda == nullptr) return Refuse(wire::Fatal::kBadHandle);
  if (kernels_.Add(request.kernel) == nullptr) return Refuse(wire::Fatal::kBadHandle);
  auto lookup = std::make_shared<KernelLookup>();
  lookup->name.assign(record.payload.begin(), record.payload.end());
  lookup->library = library->cuda;
  lookup->device = place_.device->device();
  modules_.Post([lookup, &cuda = place_.device->cuda()] { lookup->result = lookup->Find(cuda); },
                [this, lookup, asker = AskerOf(record), request] {
                  place_.device->Judge(lookup->result);
                  Library* owner = libraries_.Find(request.library);
                  if (owner == nullptr && lookup->result == CUDA_SUCCESS) {
                    lookup->result = CUDA_ERROR_INVALID_HANDLE;  // unloaded meanwhile
                  }
                  if (lookup->result == CUDA_SUCCESS) {
                    Kernel* kernel = kernels_.Find(request.kernel);
                    kernel->kernel = lookup->kernel;
                    kernel->function = lookup->function;
                    kernel->param_bytes = lookup->reply.param_bytes;
                    owner->kernels.push_back(request.kernel);
                  } else {
                    kernels_.Take(request.kernel);
                  }
                  const auto* params = reinterpret_cast<const uint8_t*>(lookup->params.data());
                  Reply<wire::KernelGet>(
                      asker, lookup->result, lookup->reply,
                      {params, lookup->params.size() * sizeof(wire::KernelParam)});
                });
}

void Session::On(wire::Tag<wire::KernelSetAttribute>,
                 const wire::KernelSetAttribute::Request& request, const wire::Record& record) {
  const Kernel* kernel = kernels_.Find(request.kernel);
  if (kernel == nullptr || kernel->function == nullptr) return Refuse(wire::Fatal::kBadHandle);
  auto lookup = std::make_shared<KernelLookup>();
  lookup->kernel = kernel->kernel;
  lookup->device = place_.device->device();
  auto reply = std::make_shared<wire::KernelSetAttribute::Reply>();
  modules_.Post(
      [lookup, reply, request, &cuda = place_.device->cuda()] {
        lookup->result =
            cuda.cuKernelSetAttribute(static_cast<CUfunction_attribute>(request.attribute),
                                      request.value, lookup->kernel, lookup->device);
        lookup->ReadAttributes(cuda, reply->attributes);
      },
      [this, lookup, reply, asker = AskerOf(record)] {
        Reply<wire::KernelSetAttribute>(asker, place_.device->Judge(lookup->result), *reply);
      });
}

void Session::On(wire::Tag<wire::OccupancyBlocks>, const wire::OccupancyBlocks::Request& request,
                 const wire::Record& record) {
  const Kernel* kernel = kernels_.Find(request.kernel);
  if (kernel == nullptr || kernel->function == nullptr) return Refuse(wire::Fatal::kBadHandle);
  auto answer = std::make_shared<std::pair<CUresult, int>>(CUDA_SUCCESS, 0);
  modules_.Post(
      [answer, request, function = kernel->function, &cuda = place_.device->cuda()] {
        answer->first = cuda.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
            &answer->second, function, request.block_threads, request.dynamic_shared_bytes,
            request.flags);
      },
      [this, answer, asker = AskerOf(record)] {
        Reply<wire::OccupancyBlocks>(asker, place_.device->Judge(answer->first), {answer->second});
      });
}

void Session::On(wire::Tag<wire::OccupancySharedMemory>,
                 const wire::OccupancySharedMemory::Request& request, const wire::Record& record) {
  const Kernel* kernel = kernels_.Find(request.kernel);
  if (kernel == nullptr || kernel->function == nullptr) return Refuse(wire::Fatal::kBadHandle);
  auto answer = std::make_shared<std::pair<CUresult, size_t>>(CUDA_SUCCESS, 0);
  modules_.Post(
      [answer, request, function = kernel->function, &cuda = place_.device->cuda()] {
        answer->first = cuda.cuOccupancyAvailableDynamicSMemPerBlock(
            &answer->second, function, request.blocks_per_sm, request.block_threads);
      },
      [this, answer, asker = AskerOf(record)] {
        Reply<wire::OccupancySharedMemory>(asker, place_.device->Judge(answer->first),
                                           {answer->second});
      });
}

}  // namespace gpuloom::executor
