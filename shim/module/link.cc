// SPDX-License-Identifier: Apache-2.0
#include "shim/module/link.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/channel/unique_fd.h"
#include "proto/cuda/fatbin.h"
#include "proto/cuda/return_if_error.h"
#include "proto/wire/link_commands.h"
#include "shim/context/context.h"
#include "shim/memory/host_arena.h"
#include "shim/module/jit_options.h"
#include "shim/process/futex.h"
#include "shim/process/handle_table.h"
#include "shim/stream/host_function.h"

namespace gpuloom {
namespace {

// A linker of the executor's driver, by id, and its result once there is one.
struct Link {
  std::atomic<uint32_t> alive;
  JitOptions jit;  // points to memory of the program, which must exist until the link is destroyed
  uint8_t* image;  // malloc'ed, once it is complete
  uint64_t image_bytes;
};

struct Links {
  HandleTable<Link, wire::kMaxLinks> table;
  Lock lock;
};
constinit Links links;

wire::LinkId IdOf(const Link* link) { return wire::LinkId{links.table.IdOf(link)}; }

Link* Find(CUlinkState state) { return links.table.Find(state); }

// Gets what the linker has reported so far, and passes it on. Errors are ignored: the report
// explains a result that the program gets anyway.
void ForwardReport(Link* link) {
  if (!link->jit.WantsReport()) return;
  JitReportBuffer place = JitReportBuffer::For(link->jit);
  if (place.size_bytes() != 0) {
    if (TakeTransferSpace(place.size_bytes(), &place.address) != CUDA_SUCCESS) return;
    memset(reinterpret_cast<void*>(place.address), 0, place.size_bytes());
  }
  wire::LinkReport::Reply reply;
  if (session.Call<wire::LinkReport>({IdOf(link), place.info_capacity_bytes,
                                      wire::HostPtr{place.address}, place.error_capacity_bytes, 0},
                                     &reply) == CUDA_SUCCESS) {
    place.Deliver(reply.report, link->jit);
  }
  if (place.size_bytes() != 0) GiveTransferSpace(place.address);
}

// Needs no context: the runtime loads libraries, whose parts are linked here, before it has one.
CUresult Create(const JitOptions& jit, Link** out) {
  CUDA_RETURN_IF_ERROR(NeedSession());
  Link* link;
  {
    Holding holding(&links.lock);
    link = links.table.Take(links.lock);
  }
  if (link == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  wire::LinkCreate::Reply reply;
  const CUresult result =
      session.Call<wire::LinkCreate>({IdOf(link)}, &reply, jit.list, jit.list_bytes());
  if (result != CUDA_SUCCESS) {
    Holding holding(&links.lock);
    links.table.Give(links.lock, link);
    return result;
  }
  link->jit = jit;
  *out = link;
  return CUDA_SUCCESS;
}

// For input that already lies in the arena. Options and name travel in the command; the name only
// appears in messages and is cut.
CUresult AddFromArena(Link* link, CUjitInputType type, uint64_t address, uint64_t bytes,
                      const char* name, const JitOptions& options) {
  uint8_t payload[wire::LinkAdd::kMaxPayloadBytes];
  const uint32_t option_bytes = options.list_bytes();
  memcpy(payload, options.list, option_bytes);
  size_t name_bytes = name == nullptr ? 0 : strlen(name);
  if (name_bytes > wire::kMaxLinkNameBytes) name_bytes = wire::kMaxLinkNameBytes;
  if (name_bytes != 0) memcpy(payload + option_bytes, name, name_bytes);
  wire::LinkAdd::Reply reply;
  const CUresult result = session.Call<wire::LinkAdd>(
      {IdOf(link), static_cast<uint32_t>(type), wire::HostPtr{address}, bytes, options.count, 0},
      &reply, payload, option_bytes + static_cast<uint32_t>(name_bytes));
  // A program looks at its buffers after the first failure, not only after cuLinkComplete.
  if (result != CUDA_SUCCESS) ForwardReport(link);
  return result;
}

// The arena's space is needed only until the executor answers: it has copied the input then.
CUresult AddData(Link* link, CUjitInputType type, const void* data, size_t bytes, const char* name,
                 const JitOptions& options) {
  // PTX is text: what is behind its end does not count.
  if (type == CU_JIT_INPUT_PTX) bytes = strnlen(static_cast<const char*>(data), bytes);
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  uint64_t address;
  CUDA_RETURN_IF_ERROR(TakeTransferSpace(bytes, &address));
  memcpy(reinterpret_cast<void*>(address), data, bytes);
  const CUresult result = AddFromArena(link, type, address, bytes, name, options);
  GiveTransferSpace(address);
  return result;
}

CUresult AddFile(Link* link, CUjitInputType type, const char* path, const JitOptions& options) {
  const channel::UniqueFd file(open(path, O_RDONLY | O_CLOEXEC));
  const off_t size = file.valid() ? lseek(file.get(), 0, SEEK_END) : -1;
  if (size < 0) return CUDA_ERROR_FILE_NOT_FOUND;
  if (size == 0) return CUDA_ERROR_INVALID_IMAGE;
  uint64_t address;
  CUDA_RETURN_IF_ERROR(TakeTransferSpace(static_cast<uint64_t>(size), &address));
  auto* bytes = reinterpret_cast<uint8_t*>(address);
  off_t have = 0;
  while (have < size) {
    const ssize_t n = pread(file.get(), bytes + have, static_cast<size_t>(size - have), have);
    if (n <= 0) break;
    have += n;
  }
  const CUresult result =
      have == size ? AddFromArena(link, type, address, static_cast<uint64_t>(size), path, options)
                   : CUDA_ERROR_INVALID_IMAGE;
  GiveTransferSpace(address);
  return result;
}

// Fetches the linked image in pieces of a reply's size.
CUresult ReadImage(Link* link, uint64_t bytes) {
  link->image = static_cast<uint8_t*>(malloc(bytes));
  if (link->image == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  for (uint64_t have = 0; have < bytes;) {
    const uint64_t left = bytes - have;
    ReplyPayload piece = {
        link->image + have,
        static_cast<uint32_t>(left < wire::kReplyPayloadBytes ? left : wire::kReplyPayloadBytes),
        0};
    wire::LinkRead::Reply reply;
    CUDA_RETURN_IF_ERROR(
        session.Call<wire::LinkRead>({IdOf(link), 0, have}, &reply, nullptr, 0, &piece));
    // An answer without progress would have us ask for ever.
    if (piece.size_bytes == 0) return CUDA_ERROR_UNKNOWN;
    have += piece.size_bytes;
  }
  link->image_bytes = bytes;
  return CUDA_SUCCESS;
}

// Links once; asked again it has the same image. The report is passed on also after a failure: it
// says why.
CUresult Complete(Link* link) {
  if (link->image != nullptr) return CUDA_SUCCESS;  // it is complete
  wire::LinkComplete::Reply reply;
  CUresult result = session.Call<wire::LinkComplete>({IdOf(link)}, &reply);
  ForwardReport(link);
  if (result != CUDA_SUCCESS) return result;
  result = ReadImage(link, reply.image_bytes);
  if (result != CUDA_SUCCESS) {
    free(link->image);
    link->image = nullptr;
  }
  return result;
}

// The handle ends first, so that of several threads one goes on.
CUresult Destroy(Link* link) {
  {
    Holding holding(&links.lock);
    if (!links.table.Give(links.lock, link, /*reuse=*/false)) return CUDA_ERROR_INVALID_HANDLE;
  }
  ForgetContextObject(ContextObjectKind::kLink, reinterpret_cast<uint64_t>(link));
  wire::LinkDestroy::Reply reply;
  const CUresult result = session.Call<wire::LinkDestroy>({IdOf(link)}, &reply);
  free(link->image);
  link->image = nullptr;
  Holding holding(&links.lock);
  links.table.Reuse(links.lock, links.table.IdOf(link));
  return result;
}

}  // namespace

CUresult LinkParts(const void* pointer, const JitOptions& jit, uint8_t** image,
                   uint64_t* image_bytes) {
  FatbinWrapper wrapper;
  // The wrapper's version 2 lists the parts, as images of their own, ending with a null.
  constexpr uint32_t kLinked = 2;
  if (pointer == nullptr || !ReadWrapper(pointer, &wrapper) || wrapper.version != kLinked ||
      wrapper.extra == nullptr) {
    return CUDA_ERROR_INVALID_IMAGE;
  }
  Link* link;
  CUDA_RETURN_IF_ERROR(Create(jit, &link));
  CUresult result = CUDA_SUCCESS;
  for (auto part = static_cast<const void* const*>(wrapper.extra); *part != nullptr; ++part) {
    Image found;
    // For a part that is no image.
    result = CUDA_ERROR_INVALID_IMAGE;
    if (FindImage(*part, &found) != ImageError::kNone) break;
    result = AddData(link, CU_JIT_INPUT_FATBINARY, found.bytes, found.size_bytes, "part", {});
    if (result != CUDA_SUCCESS) break;
  }
  if (result == CUDA_SUCCESS) result = Complete(link);
  if (result == CUDA_SUCCESS) {
    *image = link->image;
    *image_bytes = link->image_bytes;
    // Taken over by the caller, so that Destroy does not free it.
    link->image = nullptr;
  }
  (void)Destroy(link);
  return result;
}

}  // namespace gpuloom

using namespace gpuloom;  // CUDA's functions are written in our terms

extern "C" {

CUresult cuLinkCreate_v2(unsigned count, CUjit_option* options, void** values, CUlinkState* state) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  if (state == nullptr) return CUDA_ERROR_INVALID_VALUE;
  JitOptions jit;
  CUDA_RETURN_IF_ERROR(ReadJitOptions(count, options, values, &jit));
  Link* link = nullptr;
  const CUresult result = Create(jit, &link);
  if (result != CUDA_SUCCESS) return result;
  NoteContextObject(ContextObjectKind::kLink, reinterpret_cast<uint64_t>(link));
  *state = reinterpret_cast<CUlinkState>(link);
  return CUDA_SUCCESS;
}
CUresult cuLinkCreate(unsigned count, CUjit_option* options, void** values, CUlinkState* state) {
  return cuLinkCreate_v2(count, options, values, state);
}

CUresult cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void* data, size_t bytes,
                          const char* name, unsigned count, CUjit_option* options, void** values) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  Link* link = Find(state);
  if (link == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (data == nullptr || bytes == 0 || type < CU_JIT_INPUT_CUBIN ||
      type >= CU_JIT_NUM_INPUT_TYPES) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  JitOptions kept;
  CUDA_RETURN_IF_ERROR(ReadJitOptions(count, options, values, &kept));
  return AddData(link, type, data, bytes, name, kept);
}
CUresult cuLinkAddData(CUlinkState state, CUjitInputType type, void* data, size_t bytes,
                       const char* name, unsigned count, CUjit_option* options, void** values) {
  return cuLinkAddData_v2(state, type, data, bytes, name, count, options, values);
}

CUresult cuLinkAddFile_v2(CUlinkState state, CUjitInputType type, const char* path, unsigned count,
                          CUjit_option* options, void** values) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  Link* link = Find(state);
  if (link == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (path == nullptr || type < CU_JIT_INPUT_CUBIN || type >= CU_JIT_NUM_INPUT_TYPES) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  JitOptions kept;
  CUDA_RETURN_IF_ERROR(ReadJitOptions(count, options, values, &kept));
  return AddFile(link, type, path, kept);
}
CUresult cuLinkAddFile(CUlinkState state, CUjitInputType type, const char* path, unsigned count,
                       CUjit_option* options, void** values) {
  return cuLinkAddFile_v2(state, type, path, count, options, values);
}

CUresult cuLinkComplete(CUlinkState state, void** image, size_t* image_bytes) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  Link* link = Find(state);
  if (link == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUDA_RETURN_IF_ERROR(Complete(link));
  *image = link->image;
  // The image stays the link's, as CUDA documents.
  if (image_bytes != nullptr) *image_bytes = link->image_bytes;
  return CUDA_SUCCESS;
}

CUresult cuLinkDestroy(CUlinkState state) {
  if (session.state() != Session::State::kInitialized) return CUDA_ERROR_NOT_INITIALIZED;
  if (InsideHostFunction()) return CUDA_ERROR_NOT_PERMITTED;
  Link* link = Find(state);
  return link == nullptr ? CUDA_ERROR_INVALID_HANDLE : Destroy(link);
}

}  // extern "C"
