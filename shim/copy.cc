// One-dimensional copies, by what the two addresses are. Pinned memory is copied where it lies;
// pageable sources are taken over before the call returns (inline for small ones, else through
// staging buffers), pageable destinations are filled before it returns, as CUDA does.
#include <string.h>

#include "shim/capture.h"
#include "shim/context.h"
#include "shim/memory.h"
#include "shim/session.h"
#include "shim/staging.h"
#include "shim/stream.h"

namespace gpuloom {
namespace {

enum class Side { kDevice, kPinned, kPageable };

// Does the call return before the copy is done, where CUDA's may?
enum class Timing : bool { kSync, kAsync };

struct Request {
  uint64_t destination;
  uint64_t source;
  uint64_t size_bytes;
  wire::StreamId stream;
};

// False for an address in our ranges that the program does not own, or not all of it.
bool Classify(uint64_t address, uint64_t size_bytes, Side* side) {
  KnownMemory found;
  if (FindMemory(address, size_bytes, &found)) {
    *side = LiesInArena(found.kind) ? Side::kPinned : Side::kDevice;
    return true;
  }
  *side = Side::kPageable;
  return address != 0 && address + size_bytes >= address && !FindMemory(address, 1, &found) &&
         !session.device_range().Contains(address, 1) && !session.host_range().Contains(address, 1);
}

wire::CopyKind KindOf(bool to_device, bool from_device) {
  if (to_device) {
    return from_device ? wire::CopyKind::kDeviceToDevice : wire::CopyKind::kHostToDevice;
  }
  return from_device ? wire::CopyKind::kDeviceToHost : wire::CopyKind::kHostToHost;
}

CUresult PostCopy(wire::CopyKind kind, const Request& copy, wire::Ticket* ticket) {
  return session.PostOnStream<wire::Copy>(
      copy.stream, 0,
      [&](wire::Copy::Request& request, uint8_t*) {
        request = {copy.stream, kind, copy.destination, copy.source, copy.size_bytes};
      },
      ticket);
}

uint64_t PieceOf(uint64_t size_bytes, uint64_t offset) {
  const uint64_t left = size_bytes - offset;
  return left < kStagingBytes ? left : kStagingBytes;
}

CUresult FromPageable(wire::CopyKind kind, const Request& copy, wire::Ticket* ticket) {
  const auto* source = reinterpret_cast<const uint8_t*>(copy.source);
  if (kind == wire::CopyKind::kHostToDevice && copy.size_bytes <= wire::kMaxInlineCopyBytes) {
    return session.PostOnStream<wire::CopyInline>(
        copy.stream, static_cast<uint32_t>(copy.size_bytes),
        [&](wire::CopyInline::Request& request, uint8_t* payload) {
          request = {copy.stream, 0, wire::DevicePtr{copy.destination}};
          memcpy(payload, source, copy.size_bytes);
        },
        ticket);
  }
  for (uint64_t offset = 0; offset < copy.size_bytes;) {
    const uint64_t piece = PieceOf(copy.size_bytes, offset);
    Staging staging{};
    if (const CUresult result = TakeStaging(&staging); result != CUDA_SUCCESS) return result;
    memcpy(staging.data, source + offset, piece);
    *ticket = wire::Ticket{0};
    const CUresult result = PostCopy(
        kind,
        {copy.destination + offset, reinterpret_cast<uint64_t>(staging.data), piece, copy.stream},
        ticket);
    GiveStaging(staging, copy.stream, *ticket);
    if (result != CUDA_SUCCESS) return result;
    offset += piece;
  }
  return CUDA_SUCCESS;
}

// Pieces on their way into staging buffers, oldest first.
struct Arriving {
  Staging staging;
  wire::Ticket ticket{0};
  uint64_t offset;
  uint64_t size_bytes;
};

CUresult ToPageable(wire::CopyKind kind, const Request& copy) {
  auto* destination = reinterpret_cast<uint8_t*>(copy.destination);
  Arriving arriving[kStagingBuffers];
  uint32_t first = 0;
  uint32_t count = 0;
  uint64_t sent = 0;
  CUresult result = CUDA_SUCCESS;
  while (sent < copy.size_bytes || count != 0) {
    // Keep as many pieces under way as there are buffers; whoever holds one never waits for
    // another.
    while (result == CUDA_SUCCESS && sent < copy.size_bytes && count < kStagingBuffers) {
      Staging staging{};
      if (count == 0) {
        result = TakeStaging(&staging);
        if (result != CUDA_SUCCESS) break;
      } else if (!TryTakeStaging(&staging)) {
        break;
      }
      const uint64_t piece = PieceOf(copy.size_bytes, sent);
      wire::Ticket ticket{0};
      result = PostCopy(
          kind, {reinterpret_cast<uint64_t>(staging.data), copy.source + sent, piece, copy.stream},
          &ticket);
      arriving[(first + count++) % kStagingBuffers] = {staging, ticket, sent, piece};
      sent += piece;
    }
    if (count == 0) break;
    const Arriving& oldest = arriving[first];
    if (result == CUDA_SUCCESS) result = session.WaitFor(copy.stream, oldest.ticket);
    if (result == CUDA_SUCCESS) {
      memcpy(destination + oldest.offset, oldest.staging.data, oldest.size_bytes);
    }
    GiveStaging(oldest.staging, copy.stream, oldest.ticket);
    first = (first + 1) % kStagingBuffers;
    --count;
    if (result != CUDA_SUCCESS && count == 0) break;
  }
  return result;
}

CUresult Finish(const Request& copy) {
  if (const CUresult result = SynchronizeStream(copy.stream); result != CUDA_SUCCESS) return result;
  return session.TakeAsyncError();
}

CUresult Copy(const Request& copy, Side to, Side from, Timing timing) {
  const bool to_device = to == Side::kDevice;
  const bool from_device = from == Side::kDevice;
  const wire::CopyKind kind = KindOf(to_device, from_device);
  wire::Ticket ticket{0};
  CUresult result;
  if (to == Side::kPageable && from == Side::kPageable) {
    // In the stream's order, though no device takes part.
    result = Finish(copy);
    if (result == CUDA_SUCCESS) {
      memmove(reinterpret_cast<void*>(copy.destination), reinterpret_cast<void*>(copy.source),
              copy.size_bytes);
    }
    return result;
  }
  if (to == Side::kPageable) {
    result = ToPageable(kind, copy);
    return result != CUDA_SUCCESS ? result : session.TakeAsyncError();
  }
  if (from == Side::kPageable) {
    result = FromPageable(kind, copy, &ticket);
  } else {
    result = PostCopy(kind, copy, &ticket);
    // CUDA does not wait for copies within the device either.
    if (to_device && from_device) return result;
  }
  if (result != CUDA_SUCCESS || timing == Timing::kAsync) return result;
  result = session.WaitFor(copy.stream, ticket);
  return result != CUDA_SUCCESS ? result : session.TakeAsyncError();
}

// A copy within a capture. Pageable memory is read and written when the graph runs.
bool RecordsCopy(const Request& copy, Side to, Side from, Timing timing, CUresult* result) {
  if (timing == Timing::kSync) {
    *result = RefuseInCapture(copy.stream);
    return *result != CUDA_SUCCESS;
  }
  auto type_of = [](Side side) {
    return side == Side::kDevice ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
  };
  return Records(copy.stream, result, [&](graph::NodeParams* node) {
    *node = graph::LinearCopy(type_of(to), copy.destination, type_of(from), copy.source,
                              copy.size_bytes, PrimaryContext());
    return CUDA_SUCCESS;
  });
}

// What a function's name promises about an address: memory the device reaches, or anything.
enum class Promise : bool { kReachable, kAny };

CUresult CopyOn(CUstream handle, DefaultStream null_means, uint64_t destination, uint64_t source,
                uint64_t size_bytes, Promise to_promise, Promise from_promise, Timing timing) {
  if (const CUresult result = NeedContext(); result != CUDA_SUCCESS) return result;
  Request copy = {destination, source, size_bytes, wire::kLegacyStream};
  if (const CUresult result = FindStream(handle, null_means, &copy.stream);
      result != CUDA_SUCCESS) {
    return result;
  }
  if (size_bytes == 0) return CUDA_SUCCESS;
  Side to, from;
  if (!Classify(destination, size_bytes, &to) || !Classify(source, size_bytes, &from) ||
      (to == Side::kPageable && to_promise == Promise::kReachable) ||
      (from == Side::kPageable && from_promise == Promise::kReachable)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  CUresult captured;
  if (RecordsCopy(copy, to, from, timing, &captured)) return captured;
  return Copy(copy, to, from, timing);
}

CUresult HtoD(CUdeviceptr to, const void* from, size_t size, CUstream stream,
              DefaultStream null_means, Timing timing) {
  return CopyOn(stream, null_means, to, reinterpret_cast<uint64_t>(from), size, Promise::kReachable,
                Promise::kAny, timing);
}
CUresult DtoH(void* to, CUdeviceptr from, size_t size, CUstream stream, DefaultStream null_means,
              Timing timing) {
  return CopyOn(stream, null_means, reinterpret_cast<uint64_t>(to), from, size, Promise::kAny,
                Promise::kReachable, timing);
}
CUresult DtoD(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream,
              DefaultStream null_means, Timing timing) {
  return CopyOn(stream, null_means, to, from, size, Promise::kReachable, Promise::kReachable,
                timing);
}
CUresult Any(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream,
             DefaultStream null_means, Timing timing) {
  return CopyOn(stream, null_means, to, from, size, Promise::kAny, Promise::kAny, timing);
}

constexpr DefaultStream kLegacy = DefaultStream::kLegacy;
constexpr DefaultStream kPerThread = DefaultStream::kPerThread;

}  // namespace
}  // namespace gpuloom

using namespace gpuloom;  // NOLINT: CUDA's functions are written in our terms

extern "C" {

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t size) {
  return HtoD(to, from, size, nullptr, kLegacy, Timing::kSync);
}
CUresult cuMemcpyHtoD_v2_ptds(CUdeviceptr to, const void* from, size_t size) {
  return HtoD(to, from, size, nullptr, kPerThread, Timing::kSync);
}
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t size, CUstream stream) {
  return HtoD(to, from, size, stream, kLegacy, Timing::kAsync);
}
CUresult cuMemcpyHtoDAsync_v2_ptsz(CUdeviceptr to, const void* from, size_t size, CUstream stream) {
  return HtoD(to, from, size, stream, kPerThread, Timing::kAsync);
}

CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t size) {
  return DtoH(to, from, size, nullptr, kLegacy, Timing::kSync);
}
CUresult cuMemcpyDtoH_v2_ptds(void* to, CUdeviceptr from, size_t size) {
  return DtoH(to, from, size, nullptr, kPerThread, Timing::kSync);
}
CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t size, CUstream stream) {
  return DtoH(to, from, size, stream, kLegacy, Timing::kAsync);
}
CUresult cuMemcpyDtoHAsync_v2_ptsz(void* to, CUdeviceptr from, size_t size, CUstream stream) {
  return DtoH(to, from, size, stream, kPerThread, Timing::kAsync);
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t size) {
  return DtoD(to, from, size, nullptr, kLegacy, Timing::kSync);
}
CUresult cuMemcpyDtoD_v2_ptds(CUdeviceptr to, CUdeviceptr from, size_t size) {
  return DtoD(to, from, size, nullptr, kPerThread, Timing::kSync);
}
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream) {
  return DtoD(to, from, size, stream, kLegacy, Timing::kAsync);
}
CUresult cuMemcpyDtoDAsync_v2_ptsz(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream) {
  return DtoD(to, from, size, stream, kPerThread, Timing::kAsync);
}

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t size) {
  return Any(to, from, size, nullptr, kLegacy, Timing::kSync);
}
CUresult cuMemcpy_ptds(CUdeviceptr to, CUdeviceptr from, size_t size) {
  return Any(to, from, size, nullptr, kPerThread, Timing::kSync);
}
CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream) {
  return Any(to, from, size, stream, kLegacy, Timing::kAsync);
}
CUresult cuMemcpyAsync_ptsz(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream) {
  return Any(to, from, size, stream, kPerThread, Timing::kAsync);
}

}  // extern "C"
