// SPDX-License-Identifier: Apache-2.0
// The part of a session for green contexts and device resources. Ring thread only.
//
// Owns the ids. A green context is shared with what was made in it; its last user leaves it to the session's spare
// ones, which GiveSpares returns for other sessions: the driver's object is never destroyed (spare_greens.h).
#pragma once

#include <memory>

#include "agent/executor/device/green_context.h"
#include "agent/executor/device/spare_greens.h"
#include "agent/executor/session/id_table.h"
#include "agent/executor/session/session_port.h"

namespace gpuloom::executor {

class GreenContexts final : public Part {
 public:
  explicit GreenContexts(SessionPort* port) : Part(port) {}

  void On(wire::Tag<wire::PartGet>, const wire::PartGet::Request&, const wire::Record&);
  void On(wire::Tag<wire::PartSplit>, const wire::PartSplit::Request&, const wire::Record&);
  void On(wire::Tag<wire::GreenCreate>, const wire::GreenCreate::Request&, const wire::Record&);
  void On(wire::Tag<wire::GreenDestroy>, const wire::GreenDestroy::Request&, const wire::Record&);
  void On(wire::Tag<wire::GreenStreamCreate>, const wire::GreenStreamCreate::Request&,
          const wire::Record&);

  // At session end: drops one piece; returns true if that was the last.
  bool DropPiece() { return executor::DropPiece(&green_); }
  // At session end, after the streams: returns the unused ones, for other sessions.
  void GiveSpares() { greens_->GiveAll(); }

 private:
  struct NewGreen;
  const CUdevResource* FindPart(wire::DevicePartId id_untrusted);  // or nullptr
  GreenContextRef FindGreen(wire::GreenContextId id_untrusted);    // refuses if there is none
  void MakeGreen(const std::shared_ptr<NewGreen>& made);
  void AnswerGreen(NewGreen& made);

  IdTable<wire::GreenContextId, GreenContextRef, wire::kMaxGreenContexts> green_;  // null: pending
  struct DevicePart {
    CUdevResource has{};
    CUcontext within = nullptr;  // where the session's kernels ran when it was made
  };
  IdTable<wire::DevicePartId, DevicePart, wire::kMaxDeviceParts> parts_;
  std::shared_ptr<SessionGreens> greens_ = std::make_shared<SessionGreens>(services_.greens);
};

}  // namespace gpuloom::executor
