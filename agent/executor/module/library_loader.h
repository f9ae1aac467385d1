// SPDX-License-Identifier: Apache-2.0
// The part of a session for libraries being loaded (docs/design/module-loading.md), including those with managed
// variables until these have an address. Has no state: each load is owned by the work in progress. Ring thread only.
#pragma once

#include <functional>
#include <memory>

#include "agent/executor/module/libraries.h"
#include "agent/executor/session/session_port.h"

namespace gpuloom::executor {

class LibraryLoader final : public Part {
 public:
  LibraryLoader(SessionPort* port, Libraries* loaded)
      : Part(port), loaded_(loaded), libraries_(loaded->libraries()) {}

  void On(wire::Tag<wire::LibraryLoad>, const wire::LibraryLoad::Request&, const wire::Record&);
  void On(wire::Tag<wire::LibraryLoadByHash>, const wire::LibraryLoadByHash::Request&,
          const wire::Record&);
  void On(wire::Tag<wire::LibrarySizeKnown>, const wire::LibrarySizeKnown::Request&,
          const wire::Record&);
  void On(wire::Tag<wire::LibraryCompile>, const wire::LibraryCompile::Request&,
          const wire::Record&);
  void On(wire::Tag<wire::LibraryPlace>, const wire::LibraryPlace::Request&, const wire::Record&);
  void On(wire::Tag<wire::LibraryPlaceApart>, const wire::LibraryPlaceApart::Request&,
          const wire::Record&);
  void On(wire::Tag<wire::ManagedGet>, const wire::ManagedGet::Request&, const wire::Record&);

 private:
  bool LoadWhatIsKnown(const std::shared_ptr<Loading>& loading);
  void Look(const std::shared_ptr<Loading>& loading, bool whole, std::function<void()> then);
  void LoadFresh(const std::shared_ptr<Loading>& loading);
  void FinishLoad(const std::shared_ptr<Loading>& loading);
  void CompileFresh(const std::shared_ptr<Loading>& loading,
                    const wire::LibraryCompile::Request& request);
  void AnswerCompile(const std::shared_ptr<Loading>& loading,
                     const wire::LibraryCompile::Request& request);
  void UnloadTried(Loading* loading) const;
  void HoldLibrary(Loading* loading) const;
  template <typename C>
  void Place(const typename C::Request& request, uint64_t place, uint64_t values,
             const wire::Record& record);
  template <typename C>
  void AnswerLoad(Caller caller, const Loading& loading, const typename C::Reply& reply);
  void AnswerLoad(const Loading& loading);
  void Settle(const Loading& loading);
  void Remember(const std::shared_ptr<Loading>& loading);

  Libraries* const loaded_;
  LibraryTable& libraries_;
};

}  // namespace gpuloom::executor
