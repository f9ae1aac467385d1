// SPDX-License-Identifier: Apache-2.0
// Makes the commands of a random tenant: each is right as far as the tenant can know, and names what the
// tenant has made before; who sends it makes it wrong (Spoil). A seed decides everything but what the answers
// say. One thread's.
//
//   std::optional<Draft> draft = requests.Make(opcode);   // none: nothing to name yet
//   if (…) requests.Spoil(&*draft);
//   … send it; with the answer: if (draft->learn) draft->learn(answer);
#pragma once

#include <array>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "proto/wire/dispatch.h"
#include "proto/wire/session.h"
#include "tests/hostile/names.h"

namespace gpuloom::executor {
class TestingGraph;
}

namespace gpuloom::testing {

struct Draft {
  uint16_t opcode = 0;
  std::vector<uint8_t> request;
  std::vector<uint8_t> payload;
  // So many bytes of the request may be spoilt. Not more where that could make work at the device endless, which costs
  // a trust domain its executor, as the design says.
  size_t spoilable_bytes = SIZE_MAX;
  // In the same way: only words that make a grid small or impossible are put in.
  bool has_grid = false;
  // Null when an answer teaches nothing.
  std::function<void(const wire::ReplySlot&)> learn;
};

class Requests {
 public:
  using Random = sequences::Random;

  // `arena` is the mapped host range. A wild tenant also launches what faults and what never ends.
  Requests(Random* random, const wire::Welcome& welcome, uint8_t* arena, bool wild);

  std::optional<Draft> Make(uint16_t opcode);
  // Changes one field, or what lies in the arena, or the payload's length.
  void Spoil(Draft* draft);

  // A place in the session's memory, for whoever writes nonsense elsewhere.
  uint64_t AnyAddress();

 private:
  using Filler = std::function<std::optional<Draft>()>;

  // Says how C's request is filled: `fill` gets the request and the draft, and returns false when there is
  // nothing to name yet. Commands that nobody has said it for get random words.
  template <wire::Command C, typename Fill>
  void On(Fill fill) {
    fillers_[wire::kOpcode<C>] = [fill]() -> std::optional<Draft> {
      typename C::Request request{};
      Draft draft;
      draft.opcode = wire::kOpcode<C>;
      if (!fill(&request, &draft)) return std::nullopt;
      draft.request.resize(wire::kWireSize<typename C::Request>);
      if (!draft.request.empty()) {
        std::memcpy(draft.request.data(), &request, draft.request.size());
      }
      return draft;
    };
  }
  template <wire::Command C, typename Learn>
  static void OnAnswer(Draft* draft, Learn learn) {
    draft->learn = [learn](const wire::ReplySlot& answer) {
      typename C::Reply reply;
      std::memcpy(&reply, answer.reply, sizeof(reply));
      learn(answer.result == 0, reply);
    };
  }
  void FillStreams();
  void FillMemory();
  void FillSharing();
  void FillArrays();
  void FillCode();
  void FillLinks();
  void FillLaunches();
  void FillGraphs();
  void FillGreen();

  // ---- what requests are made of
  struct Part {
    uint64_t begin;
    uint64_t size_bytes;
  };
  // Where things lie in the arena.
  static constexpr uint64_t kImageRoom = 64u << 10;
  static constexpr uint64_t kBlocksBegin = 1u << 20, kBlockRoom = 64u << 10;
  static constexpr uint64_t kCopiesBegin = 2u << 20;
  static constexpr uint64_t kPinnedBegin = 4u << 20, kPinnedRoom = 64u << 10;

  wire::StreamId AnyStream();
  Part AnyDevicePart(uint64_t most_bytes);
  Part AnyHostPart(uint64_t most_bytes);
  Part AnyPart(uint64_t most_bytes);
  Part AnyImage();
  wire::Token AnyToken();
  uint32_t AnyArray();
  wire::TextureCreate::Request AnyLook(uint32_t array);
  std::vector<uint8_t> Bytes(size_t count);
  static std::vector<uint8_t> Text(std::string_view text);
  std::vector<uint8_t> JitOptions();
  std::vector<uint8_t> ParamsOf(uint32_t kernel);
  // Of one of kNodes kinds; false: there is nothing to make one of.
  static constexpr uint32_t kNodes = 8;
  bool AddNode(executor::TestingGraph* graph, uint32_t kind);
  // `kinds`: what its nodes are.
  std::vector<uint8_t> GraphDefinition(std::vector<uint32_t>* kinds);
  void StageBlock(std::vector<uint8_t> block, wire::HostPtr* where, uint64_t* size_bytes,
                  Draft* draft);
  // The answer makes the id one to use. False when there is no id.
  bool Expect(Names* names, uint32_t id, Draft* draft, uint32_t owner = 0);
  bool ExpectLibrary(uint32_t library, Draft* draft, uint64_t managed_offset);
  const Part& AnyRegistered();
  template <typename T>
  bool Take(std::vector<T>* from, T* taken) {
    if (from->empty()) return false;
    const size_t i = random_.Below(static_cast<uint32_t>(from->size()));
    *taken = (*from)[i];
    from->erase(from->begin() + static_cast<ptrdiff_t>(i));
    return true;
  }

  std::array<Filler, wire::kCommands.size()> fillers_;
  Random& random_;
  const uint64_t device_begin_, device_bytes_, host_begin_, host_bytes_;
  uint8_t* const arena_;
  // What keeps addresses (a graph, managed variables) and is used when their memory has gone faults, as it does without
  // us. So a tenant that is not wild does one or the other.
  const bool keeps_addresses_, frees_;
  const bool wild_;
  std::vector<Part> images_;
  Part space_ = {0, 0};
  Part managed_space_ = {0, 0};
  std::vector<Part> memory_;
  std::map<uint32_t, Part> registered_, mapped_, managed_;  // by their slots
  std::map<uint32_t, uint64_t> physical_bytes_;
  std::vector<std::vector<uint8_t>> tensor_maps_;
  std::vector<wire::Token> tokens_;
  std::vector<uint64_t> textures_, surfaces_;
  std::vector<std::pair<uint32_t, uint64_t>> pool_memory_;  // the pool, and its number there
  std::map<uint32_t, uint32_t> conditions_, kernel_params_;
  std::map<uint32_t, std::vector<uint32_t>> graph_nodes_;
  Names libraries_{6}, unplaced_{6}, kernels_{12}, streams_{8}, events_{12}, graphs_{6}, arrays_{6},
      links_{3}, linked_{3}, physicals_{4}, pools_{3}, references_{3}, greens_{2}, reservations_{3},
      mipmaps_{3, 101}, levels_{6, 201}, pinned_slots_{16}, mapped_slots_{8}, managed_slots_{4};
};

}  // namespace gpuloom::testing
