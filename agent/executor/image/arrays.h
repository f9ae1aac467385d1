// SPDX-License-Identifier: Apache-2.0
// The part of a session for arrays, and for textures and surfaces on them. Ring thread only.
//
// Owns the ids, the textures and the surfaces. An array itself is shared (array.h): it outlives its id for as long as a
// texture, a surface or a command names it. The driver's calls run on the lane's workers, which hold what they use;
// what the driver refuses is the reply's result.
#pragma once

#include <functional>
#include <map>

#include "agent/executor/image/array.h"
#include "agent/executor/session/id_table.h"
#include "agent/executor/session/session_port.h"

namespace gpuloom::executor {

class Arrays final : public Part {
 public:
  // `on_destroy`: the tenant has destroyed the array, and all work that names it is done.
  Arrays(SessionPort* port, std::function<void(const ArrayRef&)> on_destroy)
      : Part(port), on_destroy_(std::move(on_destroy)) {}

  void On(wire::Tag<wire::ArrayCreate>, const wire::ArrayCreate::Request&, const wire::Record&);
  void On(wire::Tag<wire::ArrayLevel>, const wire::ArrayLevel::Request&, const wire::Record&);
  void On(wire::Tag<wire::ArrayDestroy>, const wire::ArrayDestroy::Request&, const wire::Record&);
  void On(wire::Tag<wire::TextureCreate>, const wire::TextureCreate::Request&, const wire::Record&);
  void On(wire::Tag<wire::TextureDestroy>, const wire::TextureDestroy::Request&,
          const wire::Record&);
  void On(wire::Tag<wire::SurfaceCreate>, const wire::SurfaceCreate::Request&, const wire::Record&);
  void On(wire::Tag<wire::SurfaceDestroy>, const wire::SurfaceDestroy::Request&,
          const wire::Record&);

  // nullptr if there is none. `whole` of the result is null while the array is being made.
  const ArrayEntry* Find(wire::ArrayId id_untrusted) const { return arrays_.Find(id_untrusted); }
  // Resolves what a texture is to read from; returns false if refused.
  bool JudgeTexture(const wire::TextureCreate::Request& request, CUDA_RESOURCE_DESC* resource,
                    ArrayRef* array);

  // At session end: drops one piece; returns true if that was the last. Views first.
  bool DestroyViews();
  bool DropPiece() { return executor::DropPiece(&arrays_); }

 private:
  // Reserves room in the session's budget; if there is no room, answers and returns false.
  template <wire::Command C>
  bool TakeView(Caller caller, size_t views);
  // Kept as requests plus the arrays that they named: the ids may have been reused by now.
  struct Texture {
    wire::TextureCreate::Request request;
    ArrayRef array;  // null for linear memory
  };
  struct Surface {
    ArrayRef array;
    std::optional<uint32_t> level;  // of the array
  };
  void MakeArray(Caller caller, const wire::ArrayCreate::Request& request,
                 std::shared_ptr<DeviceCharge> charge);
  void DestroyArray(Caller caller, const ArrayRef& whole);
  ArrayEntry* FindArray(wire::ArrayId id_untrusted);  // refuses if there is none

  const std::function<void(const ArrayRef&)> on_destroy_;
  IdTable<wire::ArrayId, ArrayEntry, wire::kMaxArrays> arrays_;
  std::map<uint64_t, Texture> textures_;  // by handle
  std::map<uint64_t, Surface> surfaces_;
};

}  // namespace gpuloom::executor
