// SPDX-License-Identifier: Apache-2.0
// Consecutive launches of one stream that go to CUDA together (docs/design/batching.md), with all
// of their arguments, packed so that two chunks are compared bytewise.
//
// Collected by StreamSet, submitted by Session, compared and launched by Chains. Plain data, ring
// thread only.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "proto/cuda/cuda_all.h"

namespace gpuloom::executor {

// Most launches in a chunk: a chain's nodes (chain.h).
inline constexpr uint32_t kMaxChunkLaunches = 64;
// Fewest launches before the content may end a chunk.
inline constexpr uint32_t kMinChunkLaunches = 16;
// A launch with more parameter bytes goes by itself.
inline constexpr uint32_t kMaxChunkedParamBytes = 4096;
inline constexpr uint32_t kMaxChunkParamBytes = 64u << 10;

// One launch without its parameters. No padding: compared bytewise.
struct ChunkNode {
  CUkernel kernel;
  const void* library;  // the kernel's; identity, never dereferenced
  uint32_t grid[3];
  uint32_t block[3];
  uint32_t dynamic_shared_bytes;
  uint32_t param_bytes;

  uint64_t Hash() const {
    uint64_t words[sizeof(ChunkNode) / sizeof(uint64_t)];
    static_assert(sizeof(words) == sizeof(ChunkNode));
    std::memcpy(words, this, sizeof(words));
    uint64_t hash = 0x9e3779b97f4a7c15;
    for (const uint64_t word : words) hash = Mix(hash, word);
    return hash;
  }
  // Multiplies and folds in the high half: each word changes every bit.
  static uint64_t Mix(uint64_t hash, uint64_t word) {
    __extension__ using Wide = unsigned __int128;
    const Wide product = Wide{hash ^ word} * uint64_t{0xff51afd7ed558ccd};
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  }
  bool operator==(const ChunkNode& other) const {
    return std::memcmp(this, &other, sizeof(other)) == 0;
  }
};

struct Chunk {
  uint64_t first_ticket = 0;
  uint64_t signature = 0;  // of the nodes
  uint64_t content = 0;    // of the nodes and the parameters
  std::vector<ChunkNode> nodes;
  std::vector<uint8_t> params;  // one after the other, each rounded up to 8 bytes
  // Keep the kernels loaded; each library once.
  std::vector<std::shared_ptr<const void>> libraries;

  uint32_t size() const { return static_cast<uint32_t>(nodes.size()); }

  // Returns true if the chunk must end here. That depends on the launches alone, so that a repeated
  // sequence is cut at the same places.
  bool Append(const ChunkNode& node, std::span<const uint8_t> param,
              const std::shared_ptr<const void>& library) {
    const uint64_t hash = node.Hash();
    signature = ChunkNode::Mix(signature, hash);
    content = ChunkNode::Mix(content, hash);
    window_ = window_ << 16 ^ hash;  // of the last four
    nodes.push_back(node);
    const size_t at = params.size();
    params.resize(at + RoundUp(param.size()));
    if (!param.empty()) std::memcpy(params.data() + at, param.data(), param.size());
    for (size_t i = at; i < params.size(); i += sizeof(uint64_t)) {
      uint64_t word;
      std::memcpy(&word, params.data() + i, sizeof(word));
      content = ChunkNode::Mix(content, word);
    }
    if (libraries.empty() || libraries.back() != library) Keep(library);
    if (nodes.size() >= kMaxChunkLaunches || params.size() >= kMaxChunkParamBytes) return true;
    return nodes.size() >= kMinChunkLaunches && (window_ * 0x9e3779b97f4a7c15) >> kCutShift == 0;
  }

  void Clear() {
    first_ticket = signature = content = window_ = 0;
    nodes.clear();
    params.clear();
    libraries.clear();
  }

  static constexpr size_t RoundUp(size_t bytes) { return (bytes + 7) & ~size_t{7}; }
  // Memory that a launch takes while it waits.
  static constexpr size_t CostBytes(size_t param_bytes) {
    return sizeof(ChunkNode) + RoundUp(param_bytes);
  }
  // Of all its launches.
  size_t cost_bytes() const { return nodes.size() * sizeof(ChunkNode) + params.size(); }

 private:
  static constexpr int kCutShift = 64 - 5;  // at one place in 32

  void Keep(const std::shared_ptr<const void>& library) {
    for (const auto& kept : libraries) {
      if (kept == library) return;
    }
    libraries.push_back(library);
  }

  uint64_t window_ = 0;
};
using ChunkPtr = std::unique_ptr<Chunk>;

}  // namespace gpuloom::executor
