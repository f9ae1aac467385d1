// SPDX-License-Identifier: Apache-2.0
// The part of a session for texture and surface references (texture_reference.h), which are stored
// in the libraries' table. Ring thread only. Owns nothing; `libraries` and `arrays` are made before it and outlive it.
#pragma once

#include "agent/executor/module/libraries.h"
#include "agent/executor/session/session_port.h"

namespace gpuloom::executor {

class Arrays;
struct DeviceArray;

class TextureReferences final : public Part {
 public:
  TextureReferences(SessionPort* port, Libraries* libraries, Arrays* arrays)
      : Part(port),
        loaded_(libraries),
        arrays_(arrays),
        libraries_(libraries->libraries()),
        references_(libraries->references()) {}

  void On(wire::Tag<wire::ReferenceGet>, const wire::ReferenceGet::Request&, const wire::Record&);
  void On(wire::Tag<wire::ReferenceSet>, const wire::ReferenceSet::Request&, const wire::Record&);

  // Call when the tenant has destroyed the array: unbinds it from the driver's references.
  void UnbindArray(const std::shared_ptr<DeviceArray>& whole);

 private:
  struct ReferenceLookup;
  void FinishReference(Caller caller, const wire::ReferenceGet::Request& request,
                       const ReferenceLookup& lookup, const LibraryRef& loaded);

  Libraries* const loaded_;
  Arrays* const arrays_;
  LibraryTable& libraries_;
  ReferenceTable& references_;
};

}  // namespace gpuloom::executor
