// SPDX-License-Identifier: Apache-2.0
#include "shim/module/library_load.h"

#include <string.h>

#include "proto/cuda/fatbin.h"
#include "proto/cuda/image_hash.h"
#include "proto/cuda/return_if_error.h"
#include "shim/memory/host_arena.h"
#include "shim/module/managed_variables.h"
#include "shim/session/session.h"

namespace gpuloom {
namespace {

// What the executor has taken apart is loaded when its `__managed__` variables have a place.
CUresult PlaceVariables(Library* library, uint32_t managed_bytes, ReplyPayload* log) {
  return managed_bytes == 0 ? CUDA_SUCCESS : PlaceManaged(library, managed_bytes, log);
}

CUresult CallLoad(Library* library, uint64_t address, uint64_t image_bytes, ReplyPayload* log) {
  wire::LibraryLoad::Reply reply;
  const CUresult result = session.Call<wire::LibraryLoad>(
      {IdOf(library), 0, wire::HostPtr{address}, image_bytes}, &reply, nullptr, 0, log);
  return result != CUDA_SUCCESS ? result : PlaceVariables(library, reply.managed_bytes, log);
}

// Whether the domain may have the image, as far as can be said without hashing it.
bool MayBeKnown(uint64_t image_bytes) {
  if (image_bytes < wire::kByHashBytes || !HashesImagesFast()) return false;
  if (image_bytes < wire::kBySizeBytes || !session.ServerKnows(6)) return true;
  wire::LibrarySizeKnown::Reply reply;
  const CUresult result = session.Call<wire::LibrarySizeKnown>({image_bytes}, &reply);
  return result == CUDA_SUCCESS && reply.known != 0;
}

// Asks for the image by its hash if that is cheaper than sending it; sends it if nobody has loaded
// it yet.
CUresult SendImage(Library* library, const void* image, uint64_t image_bytes, ReplyPayload* log) {
  if (MayBeKnown(image_bytes)) {
    const ImageHash hash = HashImage(static_cast<const uint8_t*>(image), image_bytes);
    wire::LibraryLoadByHash::Request request = {IdOf(library), 0, {}};
    memcpy(request.hash, hash.words, sizeof(request.hash));
    wire::LibraryLoadByHash::Reply reply;
    const CUresult result = session.Call<wire::LibraryLoadByHash>(request, &reply, nullptr, 0, log);
    // What is known by its hash has no managed variables to be placed.
    if (result != CUDA_SUCCESS || reply.known != 0) return result;
  }
  uint64_t address;
  CUDA_RETURN_IF_ERROR(TakeTransferSpace(image_bytes, &address));
  memcpy(reinterpret_cast<void*>(address), image, image_bytes);
  const CUresult result = CallLoad(library, address, image_bytes, log);
  // The executor has copied the image before it answered.
  GiveTransferSpace(address);
  return result;
}

// Has the image compiled with the program's options, and gives it what the compiler reports.
CUresult CompileImage(Library* library, const void* image, uint64_t image_bytes,
                      const JitOptions& jit, LoadLog* log) {
  JitReportBuffer place = JitReportBuffer::For(jit);
  // For our own log line, where the program has no buffer.
  if (place.error_capacity_bytes == 0) place.error_capacity_bytes = LoadLog::kTextBytes;
  uint64_t address;
  CUDA_RETURN_IF_ERROR(TakeTransferSpace(image_bytes + place.size_bytes(), &address));
  // One piece of the arena for image and texts.
  place.address = address + image_bytes;
  memcpy(reinterpret_cast<void*>(address), image, image_bytes);
  memset(reinterpret_cast<void*>(place.address), 0, place.size_bytes());
  wire::LibraryCompile::Reply reply;
  CUresult result = session.Call<wire::LibraryCompile>(
      {IdOf(library), place.info_capacity_bytes, wire::HostPtr{address}, image_bytes,
       wire::HostPtr{place.address}, place.error_capacity_bytes, 0},
      &reply, jit.list, jit.list_bytes());
  if (result == CUDA_SUCCESS) {
    place.Deliver(reply.report, jit);
    result = static_cast<CUresult>(reply.result);
    const uint32_t said = reply.report.error_bytes < place.error_capacity_bytes
                              ? reply.report.error_bytes
                              : place.error_capacity_bytes;
    log->Set(reinterpret_cast<const char*>(place.address) + place.info_capacity_bytes, said);
  }
  GiveTransferSpace(address);
  return result != CUDA_SUCCESS ? result : PlaceVariables(library, reply.managed_bytes, nullptr);
}

// Machine code needs no compiler.
bool IsCompiled(const void* image, uint64_t image_bytes) {
  Image found;
  return FindImage(image, image_bytes, &found) == ImageError::kNone &&
         found.kind == ImageKind::kElf;
}

}  // namespace

CUresult LoadImage(Library* library, const void* image, uint64_t image_bytes, const JitOptions& jit,
                   LoadLog* log) {
  if (!jit.empty() && !IsCompiled(image, image_bytes)) {
    return CompileImage(library, image, image_bytes, jit, log);
  }
  char text[wire::kReplyPayloadBytes];
  ReplyPayload reply = {text, sizeof(text), 0};
  const CUresult result = SendImage(library, image, image_bytes, &reply);
  WriteJitError(jit, text, reply.size_bytes);
  log->Set(text, reply.size_bytes);
  return result;
}

CUresult UnloadImage(const Library* library) {
  wire::LibraryUnload::Reply reply;
  return session.Call<wire::LibraryUnload>({IdOf(library)}, &reply);
}

}  // namespace gpuloom
