// SPDX-License-Identifier: Apache-2.0
#include "agent/scheduler/memory_book.h"

#include "proto/cuda/cuda_all.h"

namespace gpuloom::scheduler {

MemoryBook::Grant MemoryBook::NoGrant() { return Grant{CUDA_ERROR_INVALID_VALUE, 0, {}}; }

// Nothing is created before it has been charged.
MemoryBook::Grant MemoryBook::Make(uint64_t size_bytes_untrusted, SessionMemory* session,
                                   Usage* usage) {
  const uint64_t size_bytes = size_bytes_untrusted;
  if (size_bytes == 0 || size_bytes % kGranuleBytes != 0) {
    return NoGrant();
  }
  if (session->pieces.size() >= kMaxPieces) return Grant{CUDA_ERROR_OUT_OF_MEMORY, 0, {}};
  if (!usage->Charge(size_bytes)) return Grant{CUDA_ERROR_OUT_OF_MEMORY, 0, {}};
  Grant grant{};
  SessionMemory::Piece piece{0, size_bytes};
  grant.result = spare_.Take(size_bytes, &piece.handle, &grant.memory);
  // The device's memory is full although the quota is not: the charge leaves no trace.
  if (grant.result != CUDA_SUCCESS) {
    usage->Undo(size_bytes);
    return grant;
  }
  grant.memory_id = ++last_memory_id_;
  session->pieces.emplace(grant.memory_id, piece);
  return grant;
}

MemoryBook::Grant MemoryBook::Charge(uint64_t size_bytes_untrusted, SessionMemory* session,
                                     Usage* usage) {
  if (size_bytes_untrusted == 0) return NoGrant();
  if (session->pieces.size() >= kMaxPieces) return Grant{CUDA_ERROR_OUT_OF_MEMORY, 0, {}};
  if (!usage->Charge(size_bytes_untrusted)) return Grant{CUDA_ERROR_OUT_OF_MEMORY, 0, {}};
  const uint64_t memory_id = ++last_memory_id_;
  session->pieces.emplace(memory_id, SessionMemory::Piece{0, size_bytes_untrusted});
  return Grant{CUDA_SUCCESS, memory_id, {}};
}

bool MemoryBook::Return(uint64_t memory_id_untrusted, SessionMemory* session, Usage* usage) {
  const auto it = session->pieces.find(memory_id_untrusted);
  if (it == session->pieces.end()) return false;
  // The executor's mapping keeps the pages until it unmaps them; this ends the scheduler's
  // reference and the charge.
  if (it->second.handle != 0) device_->ReleaseMemory(it->second.handle);
  usage->Discharge(it->second.size_bytes);
  session->pieces.erase(it);
  return true;
}

bool MemoryBook::Transfer(uint64_t memory_id_untrusted, SessionMemory* from, Usage* from_usage,
                          SessionMemory* to, Usage* to_usage) {
  auto piece = from->pieces.extract(memory_id_untrusted);
  if (piece.empty()) return false;
  const uint64_t size_bytes = piece.mapped().size_bytes;
  to->pieces.insert(std::move(piece));
  // Between allocations the receiver cannot refuse: the memory exists, and was granted under the
  // giver's quota.
  if (from_usage != to_usage) {
    from_usage->Discharge(size_bytes);
    to_usage->ChargeAnyway(size_bytes);
  }
  return true;
}

// Their memory cannot be released here: the driver still has it, and gives it back with the
// executor at the latest.
std::map<uint64_t, uint64_t> MemoryBook::TakeCharged(SessionMemory* session) {
  std::map<uint64_t, uint64_t> charged;
  std::erase_if(session->pieces, [&](const auto& entry) {
    if (entry.second.handle == 0) charged.emplace(entry.first, entry.second.size_bytes);
    return entry.second.handle == 0;
  });
  return charged;
}

void MemoryBook::ReleaseAll(SessionMemory* session, Usage* usage) {
  for (const auto& [id, piece] : session->pieces) {
    if (piece.handle != 0) device_->ReleaseMemory(piece.handle);
    usage->Discharge(piece.size_bytes);
  }
  session->pieces.clear();
}

}  // namespace gpuloom::scheduler
