// SPDX-License-Identifier: Apache-2.0
// The part of a session for the driver's linker. A link in progress may outlive the session, which
// does not wait for it. Ring thread only.
#pragma once

#include <functional>
#include <memory>

#include "agent/executor/session/id_table.h"
#include "agent/executor/session/session_port.h"
#include "agent/executor/session/work_pool.h"

namespace gpuloom::executor {

class Links final : public Part {
 public:
  explicit Links(SessionPort* port) : Part(port) {}

  void On(wire::Tag<wire::LinkCreate>, const wire::LinkCreate::Request&, const wire::Record&);
  void On(wire::Tag<wire::LinkAdd>, const wire::LinkAdd::Request&, const wire::Record&);
  void On(wire::Tag<wire::LinkComplete>, const wire::LinkComplete::Request&, const wire::Record&);
  void On(wire::Tag<wire::LinkRead>, const wire::LinkRead::Request&, const wire::Record&);
  void On(wire::Tag<wire::LinkReport>, const wire::LinkReport::Request&, const wire::Record&);
  void On(wire::Tag<wire::LinkDestroy>, const wire::LinkDestroy::Request&, const wire::Record&);

  // Call when the session ends.
  void End();
  // Returns true if nothing will call back into this.
  bool Idle() const { return linking_ == 0; }

 private:
  struct Link;
  struct LinkEntry {
    std::shared_ptr<Link> link;
    // The driver's linker crashes if a link state is used on several threads.
    std::unique_ptr<OwnThread> thread;
  };
  void OnLinker(LinkEntry* entry, std::function<void()> work, std::function<void()> done);
  LinkEntry* FindLink(wire::LinkId id_untrusted);  // refuses when there is none

  IdTable<wire::LinkId, LinkEntry, wire::kMaxLinks> links_;
  uint32_t linking_ = 0;  // pending on the threads of links
};

}  // namespace gpuloom::executor
