// SPDX-License-Identifier: Apache-2.0
// One-dimensional copies, by the kinds of their two addresses. Pinned memory is copied in place,
// and so is registered memory that the device reaches; from and to other registered memory,
// asynchronous copies are queued (queued_copy.h). As CUDA promises, pageable sources are read
// before the call returns (small ones into the command, others into staging buffers), and pageable
// destinations are filled before it returns. If both sides are the host's, the caller copies once
// the stream has come to that point: in CUDA such copies are synchronous, so programs may look at
// once.
#include <string.h>

#include "proto/cuda/return_if_error.h"
#include "shim/context/context.h"
#include "shim/copy/copy_side.h"
#include "shim/copy/queued_copy.h"
#include "shim/copy/staged_copy.h"
#include "shim/copy/staging.h"
#include "shim/copy/streaming_copy.h"
#include "shim/graph/capture.h"
#include "shim/memory/memory.h"
#include "shim/memory/migration.h"
#include "shim/memory/registered_memory.h"
#include "shim/session/session.h"
#include "shim/stream/host_function.h"
#include "shim/stream/stream.h"

namespace gpuloom {
namespace {

using Side = CopySide;

struct Request {
  uint64_t destination;
  uint64_t source;
  uint64_t size_bytes;
  wire::StreamId stream;
};

// Returns false for an address in our ranges that the program does not own, or not entirely.
// `place` is where the device reaches it, for a side that is not pageable.
bool Classify(uint64_t address, uint64_t size_bytes, Side* side, uint64_t* place) {
  KnownMemory found;
  *place = address;
  if (FindMemory(address, size_bytes, &found)) {
    *side = SideOf(found);
    return true;
  }
  // The device reaches these pages, so kernels that are queued may read or write them.
  if (FindMoved(address, size_bytes, place)) {
    *side = Side::kPinned;
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

// Up to this size a copy to the device travels in its command, at the cost of copying it once more.
constexpr uint64_t kInlineBytes = 4u << 10;
// Up to this size the pieces are halves of a buffer: fewer pieces would overlap less.
constexpr uint64_t kSmallPiecesBytes = 8u << 20;
constexpr uint64_t kSmallPieceBytes = kStagingBytes / 2;
// From this size a thread that copies alone bypasses the cache, where the data would not stay
// anyway.
constexpr uint64_t kPastCacheBytes = 32u << 20;

// The pieces of a copy of which one side, the staged one, is pageable; see CopyIn and CopyOut.
class LinearPieces {
 public:
  struct Piece {
    uint64_t offset;
    uint64_t size_bytes;
  };

  LinearPieces(wire::CopyKind kind, const Request& copy, Staged staged)
      : kind_(kind),
        staged_(staged),
        copy_(copy),
        past_cache_(staged == Staged::kDestination && copy.size_bytes >= kPastCacheBytes &&
                    CopiesAlone()),
        piece_bytes_(copy.size_bytes > kSmallPiecesBytes ? uint64_t{kStagingBytes}
                                                         : kSmallPieceBytes) {}

  bool Next(Piece* piece) {
    const uint64_t left = copy_.size_bytes - next_;
    *piece = {next_, left < piece_bytes_ ? left : piece_bytes_};
    next_ += piece->size_bytes;
    return left != 0;
  }
  void Fill(const Piece& piece, uint8_t* staging) const {
    StreamingCopy(staging, reinterpret_cast<const uint8_t*>(copy_.source) + piece.offset,
                  piece.size_bytes);
  }
  void Empty(const Piece& piece, const uint8_t* staging) const {
    auto* to = reinterpret_cast<uint8_t*>(copy_.destination) + piece.offset;
    if (past_cache_) {
      StreamingCopy(to, staging, piece.size_bytes);
    } else {
      memcpy(to, staging, piece.size_bytes);
    }
  }
  CUresult Post(const Piece& piece, uint8_t* staging, wire::Ticket* ticket) const {
    Request part = {copy_.destination + piece.offset, copy_.source + piece.offset, piece.size_bytes,
                    copy_.stream};
    (staged_ == Staged::kSource ? part.source : part.destination) =
        reinterpret_cast<uint64_t>(staging);
    return PostCopy(kind_, part, ticket);
  }

 private:
  const wire::CopyKind kind_;
  const Staged staged_;
  const Request copy_;
  const bool past_cache_;
  const uint64_t piece_bytes_;
  uint64_t next_ = 0;
};

CUresult FromPageableInline(const Request& copy, wire::Ticket* ticket) {
  return session.PostOnStream<wire::CopyInline>(
      copy.stream, static_cast<uint32_t>(copy.size_bytes),
      [&](wire::CopyInline::Request& request, uint8_t* payload) {
        request = {copy.stream, 0, wire::DevicePtr{copy.destination}};
        memcpy(payload, reinterpret_cast<const uint8_t*>(copy.source), copy.size_bytes);
      },
      ticket);
}

CUresult FromPageable(wire::CopyKind kind, const Request& copy, wire::Ticket* ticket) {
  if (kind == wire::CopyKind::kHostToDevice && copy.size_bytes <= wire::kMaxInlineCopyBytes) {
    Staging staging{};
    // These never wait for the device, whatever the stream is waiting for.
    if (copy.size_bytes <= kInlineBytes || !TryTakeSmallStaging(&staging)) {
      return FromPageableInline(copy, ticket);
    }
    LinearPieces pieces(kind, copy, Staged::kSource);
    pieces.Fill({0, copy.size_bytes}, staging.data);
    const CUresult result = pieces.Post({0, copy.size_bytes}, staging.data, ticket);
    GiveSmallStaging(staging, copy.stream, *ticket);
    return result;
  }
  LinearPieces pieces(kind, copy, Staged::kSource);
  return CopyIn(&pieces, copy.stream).Run(HelpFor(copy.size_bytes), ticket);
}

CUresult ToPageable(wire::CopyKind kind, const Request& copy) {
  LinearPieces pieces(kind, copy, Staged::kDestination);
  return CopyOut(&pieces, copy.stream).Run(HelpFor(copy.size_bytes));
}

struct Queued {
  wire::CopyKind kind;
  Staged staged;
  Request copy;
};

// On the thread of host functions, which may wait; `on` is a stream of ours, since the program's is
// held until this returns.
void RunQueued(const Queued& queued, wire::StreamId on) {
  Request copy = queued.copy;
  copy.stream = on;
  LinearPieces pieces(queued.kind, copy, queued.staged);
  CopyUntilArrived(&pieces, queued.staged, on, HelpFor(copy.size_bytes));
}

// Returns false for a copy that its caller makes. Small sources are read at once, unless what is queued
// may still write to them.
bool Queues(wire::CopyKind kind, const Request& copy, Staged staged, CopyTiming timing,
            CUresult* result) {
  const bool from_host = staged == Staged::kSource;
  if (timing == CopyTiming::kSync ||
      (from_host && copy.size_bytes <= wire::kMaxInlineCopyBytes && !HostFunctionsPending()) ||
      !IsRegistered(from_host ? copy.source : copy.destination, copy.size_bytes)) {
    return false;
  }
  *result = QueueCopy<&RunQueued>(copy.stream, Queued{kind, staged, copy});
  return *result != CUDA_ERROR_NOT_SUPPORTED;
}

CUresult Copy(const Request& copy, Side to, Side from, CopyTiming timing) {
  const bool to_device = to == Side::kDevice;
  const bool from_device = from == Side::kDevice;
  const wire::CopyKind kind = KindOf(to_device, from_device);
  wire::Ticket ticket{0};
  CUresult result;
  if (CallerCopies(to, from)) {
    result = SynchronizeForTurn(copy.stream);
    if (result == CUDA_SUCCESS) {
      memmove(reinterpret_cast<void*>(copy.destination), reinterpret_cast<void*>(copy.source),
              copy.size_bytes);
    }
    return result;
  }
  if (to == Side::kPageable) {
    if (Queues(kind, copy, Staged::kDestination, timing, &result)) return result;
    result = ToPageable(kind, copy);
    return result != CUDA_SUCCESS ? result : session.TakeAsyncError();
  }
  if (from == Side::kPageable) {
    if (Queues(kind, copy, Staged::kSource, timing, &result)) return result;
    // A synchronous copy reads its source in the stream's order, and so does every copy from registered
    // memory. Only the program's own functions and queued copies can have written to it.
    if (HostFunctionsPending() && (timing == CopyTiming::kSync || IsRegistered(copy.source, 1))) {
      CUDA_RETURN_IF_ERROR(SynchronizeStream(copy.stream));
    }
    result = FromPageable(kind, copy, &ticket);
  } else {
    result = PostCopy(kind, copy, &ticket);
    // CUDA does not wait for copies within the device either.
    if (to_device && from_device && !MemoryOperationsWait()) return result;
  }
  if (result != CUDA_SUCCESS || timing == CopyTiming::kAsync) return result;
  result = session.WaitFor(copy.stream, ticket);
  return result != CUDA_SUCCESS ? result : session.TakeAsyncError();
}

// Copies registered memory that the device reaches in several places. Returns false for any other memory.
bool CopiesParts(const Request& copy, Side to, Side from, CopyTiming timing, CUresult* result) {
  const bool to_host = to == Side::kPageable;
  if (CallerCopies(to, from) || (!to_host && from != Side::kPageable)) return false;
  const wire::CopyKind kind = KindOf(to == Side::kDevice, from == Side::kDevice);
  wire::Ticket ticket{0};
  {
    const MovedParts parts(to_host ? copy.destination : copy.source, copy.size_bytes);
    if (parts.count() == 0) return false;
    uint64_t done = 0;
    *result = CUDA_SUCCESS;
    for (uint32_t i = 0; i < parts.count() && *result == CUDA_SUCCESS; ++i) {
      const MovedParts::Part& here = parts[i];
      Request part = {copy.destination + done, copy.source + done, here.size_bytes, copy.stream};
      (to_host ? part.destination : part.source) = here.place;
      *result = PostCopy(kind, part, &ticket);
      done += here.size_bytes;
    }
  }
  if (*result != CUDA_SUCCESS || timing == CopyTiming::kAsync) return true;
  *result = session.WaitFor(copy.stream, ticket);
  if (*result == CUDA_SUCCESS) *result = session.TakeAsyncError();
  return true;
}

// A copy within a capture. Pageable memory is read and written when the graph runs.
bool RecordsCopy(const Request& copy, Side to, Side from, CopyTiming timing, CUresult* result) {
  if (timing == CopyTiming::kSync) {
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
                uint64_t size_bytes, Promise to_promise, Promise from_promise, CopyTiming timing) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  Request copy = {destination, source, size_bytes, wire::kLegacyStream};
  CUDA_RETURN_IF_ERROR(FindStream(handle, null_means, &copy.stream));
  if (size_bytes == 0) return CUDA_SUCCESS;
  Side to, from;
  Request placed = copy;
  if (!Classify(destination, size_bytes, &to, &placed.destination) ||
      !Classify(source, size_bytes, &from, &placed.source) ||
      (to == Side::kPageable && to_promise == Promise::kReachable) ||
      (from == Side::kPageable && from_promise == Promise::kReachable)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  CUresult result;
  if (RecordsCopy(copy, to, from, timing, &result)) return result;
  // Keeps the memory that the copy names from coming home until the copy is in the ring or, if this waits for it, done.
  const MigrationUse use(destination, source);
  CUDA_RETURN_IF_ERROR(use.result());
  // Parts have places of their own, so this takes the program's addresses, unlike Copy.
  if (CopiesParts(copy, to, from, timing, &result)) return result;
  result = Copy(placed, to, from, timing);
  if (result != CUDA_SUCCESS || timing == CopyTiming::kAsync || !use.any()) return result;
  return session.WaitForStream(copy.stream);  // the program may look at once
}

CUresult HtoD(CUdeviceptr to, const void* from, size_t size, CUstream stream,
              DefaultStream null_means, CopyTiming timing) {
  return CopyOn(stream, null_means, to, reinterpret_cast<uint64_t>(from), size, Promise::kReachable,
                Promise::kAny, timing);
}
CUresult DtoH(void* to, CUdeviceptr from, size_t size, CUstream stream, DefaultStream null_means,
              CopyTiming timing) {
  return CopyOn(stream, null_means, reinterpret_cast<uint64_t>(to), from, size, Promise::kAny,
                Promise::kReachable, timing);
}
CUresult DtoD(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream,
              DefaultStream null_means, CopyTiming timing) {
  return CopyOn(stream, null_means, to, from, size, Promise::kReachable, Promise::kReachable,
                timing);
}
CUresult Any(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream,
             DefaultStream null_means, CopyTiming timing) {
  return CopyOn(stream, null_means, to, from, size, Promise::kAny, Promise::kAny, timing);
}

}  // namespace
}  // namespace gpuloom

using namespace gpuloom;  // CUDA's functions are written in our terms

CUresult api::cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t size,
                              DefaultStream null_means) {
  return HtoD(to, from, size, nullptr, null_means, CopyTiming::kSync);
}
CUresult api::cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t size, CUstream stream,
                                   DefaultStream null_means) {
  return HtoD(to, from, size, stream, null_means, CopyTiming::kAsync);
}

CUresult api::cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t size, DefaultStream null_means) {
  return DtoH(to, from, size, nullptr, null_means, CopyTiming::kSync);
}
CUresult api::cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t size, CUstream stream,
                                   DefaultStream null_means) {
  return DtoH(to, from, size, stream, null_means, CopyTiming::kAsync);
}

CUresult api::cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t size,
                              DefaultStream null_means) {
  return DtoD(to, from, size, nullptr, null_means, CopyTiming::kSync);
}
CUresult api::cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream,
                                   DefaultStream null_means) {
  return DtoD(to, from, size, stream, null_means, CopyTiming::kAsync);
}

CUresult api::cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t size, DefaultStream null_means) {
  return Any(to, from, size, nullptr, null_means, CopyTiming::kSync);
}
CUresult api::cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream,
                            DefaultStream null_means) {
  return Any(to, from, size, stream, null_means, CopyTiming::kAsync);
}
